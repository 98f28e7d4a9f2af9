// The size of a terminal, and the width of text on it.
//
// Any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};

// None when `fd` is no terminal, or one that does not report its size.
std::optional<TerminalSize> FindTerminalSize(int fd);

// In columns. A UTF-8 character counts as one; wider ones are rare here, and shift only the rest of
// their own line.
std::size_t TextWidth(std::string_view text);
// The longest prefix of whole characters that is at most `width` wide.
std::string CutText(std::string_view text, std::size_t width);

}  // namespace muster
