// The logs of a job's ranks, and what is added to them.
//
// Blocks; with `follow` until the job ends, or until an interrupt. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "cli/client/command_context.h"

namespace muster {

struct LogsOptions {
  std::string job;
  std::optional<int> rank;
  std::int64_t generation = 0;  // 0: the newest
  bool follow = false;
  std::optional<int> tail;  // lines per rank
  bool from_first = false;  // with `follow`: from the first attempt on, not from the newest
  // Only these local ranks, on nodes with `ranks_per_node` ranks; none: all.
  std::optional<std::set<int>> local_ranks;
  int ranks_per_node = 1;
  // Called when following is interrupted: true continues. Empty: it ends.
  std::function<bool()> on_interrupt;
};
CommandResult ShowLogs(CommandContext& context, const LogsOptions& options);

}  // namespace muster
