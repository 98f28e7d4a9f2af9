// Plan: which waiting jobs get a gang of slots now, and why the others wait.
//
// Order: jobs that ran until a fault first, because a recovery is not queueing, then higher
// priority, then order of submission. A gang is placed whole or not at all; a job keeps the nodes
// it had before, in the same rank order, if they have room. A job that the cluster could hold once
// others have ended reserves the nodes it could use, so that smaller jobs behind it cannot starve
// it. A job that no waiting would place (too few nodes, too few slots) blocks no other. Spares are
// given out in the same order: nodes held beside a gang, for it alone. Among equally good nodes, a
// gang takes those that leave no failure domain with more than half of its nodes
// (failure_domains.h); spares are taken from domains with as few of its nodes as possible.
//
// A node has one GPU job at a time, as a gang's node or as a spare: GPUs are given out by local
// rank, so two jobs would get the same ones. Jobs without GPUs may use the slots that it leaves.
//
// Pure: a snapshot in, a plan out. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "coordinator/scheduler/wait_reason.h"

namespace muster {

// Slots that processes of a waiting job hold, for that job alone; not among a node's free slots.
struct HeldSlots {
  NodeName node;
  int slots = 0;
};

// A job that waits for a gang of `nodes` x `ranks_per_node` slots.
struct GangRequest {
  JobId job;
  int nodes = 1;      // 0: the job has its gang, and only spares are wanted
  int min_nodes = 0;  // a gang of fewer than `nodes` is allowed, down to this; 0: it is not
  int spares = 0;     // nodes beside the gang's, as many as there are
  int ranks_per_node = 1;
  bool needs_gpus = false;  // never on a node known to have none, or whose GPUs another job has
  int priority = 50;
  std::uint64_t submit_order = 0;
  std::vector<NodeName> exclude;
  std::vector<NodeName> former_nodes;  // of its last attempt, by node rank
  std::vector<NodeName> preferred;     // before others if former nodes have no room
  std::vector<HeldSlots> held;
  std::vector<std::string> domains;  // of the nodes that it has, if it only wants spares
  bool recovering = false;           // it ran until now: before all that did not

  int least() const { return min_nodes > 0 && min_nodes < nodes ? min_nodes : nodes; }
};

// A node that may be used (ready and connected).
struct NodeCapacity {
  NodeName name;
  int slots = 0;
  int free_slots = 0;                // at most `slots`; negative if more is counted than exists
  std::string domain;                // nodes of one domain are expected to fail together
  bool without_gpus = false;         // it has reported that it has none
  std::vector<JobId> gpu_jobs = {};  // whose processes may use its GPUs
};

struct SchedulerSnapshot {
  std::vector<GangRequest> requests;  // any order
  std::vector<NodeCapacity> nodes;    // any order, names distinct
};

struct GangPlacement {
  JobId job;
  std::vector<NodeName> nodes;  // by node rank
  std::vector<NodeName> spares;
};

struct WaitingJob {
  JobId job;
  WaitReason reason;
};

struct SchedulePlan {
  std::vector<GangPlacement> placements;  // in the order they were decided
  std::vector<WaitingJob> waiting;        // next to be placed first
};

SchedulePlan Plan(const SchedulerSnapshot& snapshot);

}  // namespace muster
