// Copies of large arrays that leave the processor's caches to training.
#pragma once

#include <cstddef>

namespace muster {

// memcpy for what this core will not read soon: stores past the caches, where the processor
// can. The copy does not fetch the lines that it overwrites, so it moves a third less, and what the
// next step works on stays cached. Any alignment; any thread.
void StreamCopy(void* to, const void* from, std::size_t bytes);

// The same in pieces: other threads see them, in order with later stores, after StreamFence.
void StreamPiece(void* to, const void* from, std::size_t bytes);
void StreamFence();

}  // namespace muster
