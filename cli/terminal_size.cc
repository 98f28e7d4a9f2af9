#include "cli/terminal_size.h"

#include <sys/ioctl.h>

namespace muster {

std::optional<TerminalSize> FindTerminalSize(int fd) {
  winsize window{};
  if (::ioctl(fd, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0)
    return std::nullopt;
  return TerminalSize{window.ws_col, window.ws_row};
}

}  // namespace muster
