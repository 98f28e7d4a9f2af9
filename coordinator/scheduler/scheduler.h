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
// A gang gets devices by their ids, processors and memory beside its slots, and so does each of its
// spares (node_fit.h). A job that stays on a node keeps the devices that it has there.
//
// Pure: a snapshot in, a plan out. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/resources/node_demand.h"
#include "coordinator/scheduler/node_fit.h"
#include "coordinator/scheduler/wait_reason.h"

namespace muster {

// What processes of a waiting job hold of a node, for that job alone; not among its free parts.
struct HeldParts {
  NodeName node;
  NodeParts parts;
};

// A job that waits for a gang.
struct GangRequest {
  JobId job;
  int nodes = 1;      // 0: the job has its gang, and only spares are wanted
  int min_nodes = 0;  // a gang of fewer than `nodes` is allowed, down to this; 0: it is not
  int spares = 0;     // nodes beside the gang's, as many as there are
  NodeDemand demand;  // of each node
  int priority = 50;
  std::uint64_t submit_order = 0;
  std::vector<NodeName> exclude;
  std::vector<NodeName> former_nodes;  // of its last attempt, by node rank
  std::vector<NodeName> preferred;     // before others if former nodes have no room
  std::vector<HeldParts> held;
  std::vector<std::string> domains;  // of the nodes that it has, if it only wants spares
  std::string place;                 // where those are, at the level of demand.topology
  bool recovering = false;           // it ran until now: before all that did not

  int least() const { return min_nodes > 0 && min_nodes < nodes ? min_nodes : nodes; }
};

struct SchedulerSnapshot {
  std::vector<GangRequest> requests;  // any order
  std::vector<NodeCapacity> nodes;    // that may be used; any order, names distinct
};

struct GangPlacement {
  JobId job;
  std::vector<NodeName> nodes;  // by node rank
  std::vector<NodeName> spares;
  std::vector<DeviceMask> node_devices;  // of each of `nodes`
  std::vector<DeviceMask> spare_devices;
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

// Why the node could never hold a part of such a gang, even if it were empty; nothing if it could.
std::optional<NearestMiss> MissOf(const GangRequest& request, const NodeCapacity& node);
// Whether `a` misses it by less than `b`.
bool IsNearer(const NearestMiss& a, const NearestMiss& b);

}  // namespace muster
