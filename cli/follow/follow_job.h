// Following a job to its end, for the verbs attach, wait and submit and their counterparts under
// Slurm.
//
// Blocks until the job ends, or until an interrupt. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cli/client/command_context.h"
#include "common/base/clock.h"

namespace muster {

struct AttachOptions {
  std::string job;
  // Called repeatedly while no coordinator answers, where one may start elsewhere. It waits a
  // little, and reports to people what it waits for. An error ends the following. Empty: a
  // coordinator that has answered before gets half a minute to come back.
  std::function<Status(const std::function<void(const std::string&)>& notice)> await_coordinator;
  std::string attach_again;  // the command that does; empty: `muster attach` for this cluster
};

// Shows the job's progress and events; the result is the exit code of the job's state.
CommandResult AttachToJob(CommandContext& context, const AttachOptions& options);

struct WaitOptions {
  std::string job;
  std::optional<Duration> timeout;
  // Waits no longer than until this step is finished; 0: until the job runs.
  std::optional<std::int64_t> step = std::nullopt;
  bool show_progress = false;  // on standard error
};

// Waits, then prints the job; the result is the exit code of its state, 0 of a job that goes on.
CommandResult WaitForJob(CommandContext& context, const WaitOptions& options);

}  // namespace muster
