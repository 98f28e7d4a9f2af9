// Supervisor: one per node of an allocation of a cluster's scheduler (srun's task): it keeps this
// node's worker, and, where the election says so, the coordinator, and sees the job through.
//
//   Election, JobMonitor, AllocationEnding, DecideClosing    decide (pure)
//   PeerLink, SharedDir     what others say
//   NodePrograms            muster-worker, muster-coordinator
//   LeaderDuties                 the leader's part in the job, with its coordinator
//   Scheduler               Slurm: when the allocation ends, who is in it; requeue, cancel
//
// One thread, but for what may block: starting programs, the scheduler's commands, the shared
// directory. When it is killed its children die with it, and the others go on without this node.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "worker/allocation/election.h"
#include "worker/allocation/job_monitor.h"
#include "worker/allocation/scheduler.h"

namespace muster::worker {

struct SupervisorOptions {
  std::string allocation;  // the scheduler's cluster and job: equal on all nodes
  int run = 0;             // how often it was requeued
  std::string step;        // this call of srun, equal for its tasks (slurm::Allocation)
  int node_count = 1;
  std::vector<std::string> node_names;  // of the allocation; may be empty
  Member self;                          // without the port
  std::string shared_dir;               // absolute
  std::string local_dir;   // absolute, of this node alone; another where that is not to be trusted
  std::string binary_dir;  // with muster-worker and muster-coordinator
  std::string job_yaml;    // resolved, with an absolute workdir
  bool has_worker = true;  // false: a node without GPUs, for the coordinator only
  std::vector<std::string> worker_arguments;  // beside those that are set here
  double lease_seconds = 4;                   // of the coordinator
  // After SIGTERM, for the job to save its state; nothing: what the scheduler leaves of 25.
  std::optional<double> term_seconds;
  std::string log_level = "info";
  ElectionOptions election;
  JobMonitorOptions course;
};

// The exit code that is to be the task's; docs/slurm.md lists them.
Result<int> RunSupervisor(SupervisorOptions options, std::unique_ptr<Scheduler> scheduler);

}  // namespace muster::worker
