// Small work on text. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

namespace muster {

// With lower-case letters for those of ASCII; other bytes stay.
std::string AsciiLower(std::string text);

// "a, b, c".
std::string Join(const std::vector<std::string>& words);

}  // namespace muster
