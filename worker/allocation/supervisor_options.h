// SupervisorOptions: what a node's supervisor (supervisor.h) is started with. A value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/allocation/election.h"
#include "worker/allocation/job_monitor.h"

namespace muster::worker {

struct SupervisorOptions {
  std::string allocation;    // the scheduler's cluster and job: equal on all nodes
  int run = 0;               // how often it was requeued
  std::string step;          // equal for all tasks that are peers (AutoTask)
  std::optional<int> ended;  // the job is over, with this exit code: there is nothing to supervise
  int node_count = 1;
  std::vector<std::string> node_names;  // of the allocation; may be empty
  Member self;                          // without the port
  std::string shared_dir;               // absolute
  std::string
      local_dir;  // absolute, of this node alone; another one if that is not private to the user
  std::string binary_dir;  // with muster-worker and muster-coordinator
  std::string job_yaml;    // resolved, with an absolute workdir
  bool has_worker = true;  // false: a node without GPUs, for the coordinator only
  std::vector<std::string> worker_arguments;  // besides those that are set here
  double lease_seconds = 4;                   // of the coordinator
  // After SIGTERM, for the job to save its state; empty: what the scheduler leaves of 25.
  std::optional<double> term_seconds;
  std::string log_level = "info";
  ElectionOptions election;
  JobMonitorOptions monitor;
};

}  // namespace muster::worker
