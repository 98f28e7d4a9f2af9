// Small work on text. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace muster {

// With lower-case letters for those of ASCII; other bytes stay.
std::string AsciiLower(std::string text);

// "a, b, c".
std::string Join(const std::vector<std::string>& words);

// The known word nearest to `word`, if it is near enough to be a slip of the finger.
std::optional<std::string> NearestWord(const std::string& word,
                                       const std::vector<std::string>& known);

}  // namespace muster
