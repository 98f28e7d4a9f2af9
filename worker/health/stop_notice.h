// Whether an outside notice announces the end of this node: a file that appears, or a command that
// exits with 0, such as a query of a cloud's metadata service.
//
// CheckStopNotice blocks, so a daemon calls it from a pool; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/wire/messages.h"

namespace muster::worker {

struct StopNoticeOptions {
  std::string file;                  // empty: none
  std::vector<std::string> command;  // empty: none

  bool any() const { return !file.empty() || !command.empty(); }
};

// A notice once there is one. `cancel_fd` ends the command when it is readable; -1: none.
std::optional<NodeNotice> CheckStopNotice(const StopNoticeOptions& options, int cancel_fd);

// The seconds that are left, from the file's content or the command's output: a number alone on the
// first line. 0: unknown.
double ParseNoticeSeconds(std::string_view text);

// Words between blanks; no shell interprets them.
std::vector<std::string> SplitWords(std::string_view text);

}  // namespace muster::worker
