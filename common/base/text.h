// Text that other processes hand in, cut to what is kept of it.
//
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>

namespace muster {

// At most the first `max_bytes` bytes of UTF-8 text, never with a character cut in two: half a
// character would make every message that carries the text unreadable for its receiver.
std::string CutText(std::string text, std::size_t max_bytes);

}  // namespace muster
