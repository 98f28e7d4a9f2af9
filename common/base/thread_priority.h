// Work that must not take the processor from training.
#pragma once

namespace muster {

// Gives the calling thread, and it alone, the lowest ordinary priority (nice 19): it runs where
// nobody else wants to and still gets a small share of a busy machine, so it never starves. Cannot
// be taken back without privileges: for threads that do nothing else.
void LowerThreadPriority();

}  // namespace muster
