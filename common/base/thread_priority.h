// Work that must not take the processor from training.
#pragma once

namespace muster {

// Gives the calling thread, and it alone, a low priority (nice 10): it runs where no other thread
// wants to, and on a busy core it gets about a tenth, so that a tenth of a second of work is done
// after one second and not, as with nice 19, after six. Cannot be taken back without privileges:
// for threads that do nothing else.
void LowerThreadPriority();

// As above, and the thread's reads wait until no other process wants the disk (the idle class of
// I/O, where the disk's scheduler has classes).
void LowerThreadPriorityToIdle();

}  // namespace muster
