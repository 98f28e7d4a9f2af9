// How large a terminal is.
//
// Pure apart from asking the terminal; any thread.
#pragma once

#include <optional>

namespace muster {

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};

// Nothing where `fd` is no terminal, or one that does not know its size.
std::optional<TerminalSize> FindTerminalSize(int fd);

}  // namespace muster
