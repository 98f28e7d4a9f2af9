#include "cli/base/terminal.h"

#include <sys/ioctl.h>

#include <algorithm>

namespace muster {
namespace {

bool ContinuesCharacter(char c) { return (c & 0xc0) == 0x80; }

}  // namespace

std::optional<TerminalSize> FindTerminalSize(int fd) {
  winsize window{};
  if (::ioctl(fd, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0)
    return std::nullopt;
  return TerminalSize{window.ws_col, window.ws_row};
}

std::size_t TextWidth(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !ContinuesCharacter(c); }));
}

std::string CutText(std::string_view text, std::size_t width) {
  std::size_t end = 0;
  for (std::size_t columns = 0; end < text.size(); ++end)
    if (!ContinuesCharacter(text[end]) && ++columns > width) break;
  return std::string(text.substr(0, end));
}

}  // namespace muster
