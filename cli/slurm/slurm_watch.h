// SlurmWatch: whether a job under Slurm has ended, for those who wait for it or follow it.
//
// The supervisors' outcome.json is read each time; Slurm, whose controller serves a whole cluster,
// is asked every 15 seconds, and when the outcome has changed. A controller that restarts is waited
// for. Owned by a command. Blocks for files and for Slurm's commands; one thread.
#pragma once

#include <optional>
#include <string>

#include "cli/slurm/slurm_job.h"
#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/slurm/slurm_commands.h"

namespace muster {

// How often to look.
inline constexpr Duration kSlurmLookPause = std::chrono::seconds(1);

class SlurmWatch {
 public:
  // `job` as FindSlurmJob takes it.
  SlurmWatch(const slurm::SlurmCommands& commands, std::string job, std::string state_dir);

  // The exit code of a job that has ended; nothing while it may still run.
  Result<std::optional<int>> Look();
  // Has the next Look ask Slurm.
  void AskNow() { ask_at_ = SystemClock().Now(); }

  // What was known at the last Look: Slurm's part may be older than the supervisors'.
  const SlurmJob& job() const { return job_; }

 private:
  Result<SlurmJob> Ask() const;

  const slurm::SlurmCommands& commands_;
  const std::string name_;
  const std::string state_dir_;
  SlurmJob job_;
  TimePoint ask_at_;
};

}  // namespace muster
