// Text that other processes hand in, made fit to be passed on.
//
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

// At most the first `max_bytes` bytes of UTF-8 text, never with a character cut in two: half a
// character would make every message that carries the text unreadable for its receiver.
std::string CutText(std::string text, std::size_t max_bytes);

// The text with U+FFFD in place of what is not UTF-8 (overlong forms, surrogates, what is cut short
// or above U+10FFFF): one for each longest beginning of a character, else for each byte, as Unicode
// recommends. Strings of protobuf carry nothing else.
std::string ValidUtf8(std::string_view text);

}  // namespace muster
