// Supervisor: one per node of a scheduler's allocation (srun's task): it runs this node's worker,
// and the coordinator if the node is elected, and monitors the job to its end.
//
//   Election, JobMonitor, AllocationEnding, DecideClosing    decide (pure)
// PeerLink, SharedDir     the state of the others
//   NodePrograms            muster-worker, muster-coordinator
//   LeaderDuties                 the leader's part in the job, with its coordinator
//   Scheduler               Slurm: when the allocation ends, who is in it; requeue, cancel
//
// One thread, except for what may block: starting programs, the scheduler's commands, the shared
// directory. When it is killed its children die with it, and the others go on without this node.
#pragma once

#include <memory>

#include "common/base/result.h"
#include "worker/allocation/scheduler.h"
#include "worker/allocation/supervisor_options.h"

namespace muster::worker {

// The exit code of the task; docs/slurm.md lists them.
Result<int> RunSupervisor(SupervisorOptions options, std::unique_ptr<Scheduler> scheduler);

}  // namespace muster::worker
