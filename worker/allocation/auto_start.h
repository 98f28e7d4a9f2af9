// muster-worker --auto: from a task and a job file to a supervisor's options.
//
// Reads files and the host's addresses; called once, before the supervisor runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "worker/allocation/auto_task.h"
#include "worker/allocation/auto_torchrun.h"
#include "worker/allocation/supervisor.h"

namespace muster::worker {

struct AutoFlags {
  std::string job;                     // a job file, or
  TorchrunCall torchrun;               // if it has words, the job is theirs
  std::vector<std::string> overrides;  // key=value, as of muster submit --set
  std::string interface;               // as of --interface; empty: that of the task's route
  std::string state_dir;               // of the supervisors; empty: below the job's output
  int slots = 0;                       // 0: the node's GPUs, or ranks_per_node without GPUs
  double lease_seconds = 4;
  std::optional<double> term_seconds;       // after SIGTERM; empty: the scheduler's
  std::optional<double> stop_lead_seconds;  // before the end of the time; empty: as measured
  int max_requeues = 100;
  double wait_seconds = 60;      // of a job that waits for nodes
  double give_up_seconds = 120;  // without any node that can run a coordinator
  std::string log_level = "info";
  std::vector<std::string> worker_arguments;  // passed on
};

// kInvalidArgument names the file and line, or the flag, that is wrong. `binary_dir` contains the
// programs.
Result<SupervisorOptions> PlanSupervisor(const AutoTask& task, const AutoFlags& flags,
                                         const std::string& binary_dir);

}  // namespace muster::worker
