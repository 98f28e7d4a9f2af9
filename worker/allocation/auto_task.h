// AutoTask: what a process of `muster-worker --auto` has learned of the place that it runs at, from
// Slurm's variables (TaskOfSlurm) or from those of a pod of an Indexed Job (indexed_job.h). All
// that follows reads this value and nothing of the scheduler's.
//
// A plain value and a pure function; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/slurm/allocation.h"

namespace muster::worker {

// Words for errors and notes: what to ask this scheduler for, and how.
struct SchedulerWords {
  std::string more_nodes;  // in front of a number
  std::string more_gpus;   // in front of a number
  std::string no_gpus;     // who gave none, a clause
  std::string to_logs;     // an argument of `muster logs`
};

struct AutoTask {
  // Equal for all tasks of a job of the scheduler, and kept when it runs again.
  std::string allocation;
  // How often the job was started again; empty: the shared directory knows (FindRun).
  std::optional<int> run;
  std::string step;  // equal for all tasks that are peers, another for later ones
  std::vector<std::string> nodes;
  int node_id = 0;             // of this one in `nodes`
  std::string state_name;      // of the shared directory, below the job's output
  std::string local_name;      // of this task's own directory, below tmp_dir
  std::string tmp_dir;         // on the node's own disk
  std::string own_address;     // numeric; empty: that of the route to `route_to`
  std::string route_to;        // numeric; may be empty
  int cpus = 0;                // of the task; 0: not given
  int gpus = 0;                // of the task
  bool may_lack_gpus = false;  // such a task is there for the coordinator alone
  std::string switches;        // over this node, from the top down; may be empty
  SchedulerWords words;

  int node_count() const { return static_cast<int>(nodes.size()); }
  const std::string& node_name() const { return nodes[static_cast<std::size_t>(node_id)]; }
};

AutoTask TaskOfSlurm(const slurm::Allocation& allocation);

// `text` with characters that a certificate's name may contain, and its last 63 at most.
std::string AsName(std::string text);

}  // namespace muster::worker
