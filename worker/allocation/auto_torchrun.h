// muster-worker --auto -- TORCHRUN-FLAGS SCRIPT ARGS: torchrun's command line as the job of an
// allocation, as `muster run` has it for a cluster (common/job_spec/torchrun_flags.h).
//
// Blocks for files; called once, before the supervisor runs.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "worker/allocation/auto_task.h"

namespace muster::worker {

struct TorchrunCall {
  std::vector<std::string> words;  // behind --
  slurm::Environment environment;  // the task's
  std::string directory;           // the task's, absolute
};

struct TorchrunPlan {
  std::string yaml;                // of a job file
  std::vector<std::string> notes;  // for people: flags that mean nothing here, one a line
};

// --nnodes defaults to that of the allocation. The script gets the task's variables, except the
// scheduler's that are true of one node or task only. kInvalidArgument names the flag.
Result<TorchrunPlan> PlanTorchrun(const AutoTask& task, const TorchrunCall& call);

// The text that the first supervisor has left in `dir`/job.yaml, which may be this one. The
// environments of two nodes differ, and those of two runs of a Slurm job, but there is one job.
Result<std::string> AgreeOnJob(const std::string& dir, const std::string& node,
                               const std::string& yaml);

}  // namespace muster::worker
