// GangRequest: what a job asks of the scheduler.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/resources/node_demand.h"
#include "coordinator/queues/queue_tree.h"
#include "coordinator/scheduler/node_fit.h"
#include "coordinator/scheduler/step_function.h"

namespace muster {

// What processes of a waiting job hold of a node, for that job alone; not among its free parts.
struct HeldParts {
  NodeName node;
  NodeParts parts;
  bool lent = false;  // a part of the node's lent parts
};

// The job starts at `start` at the latest, on these nodes if on no others: what the cluster owes
// it.
struct Promise {
  TimePoint start;
  std::vector<NodeName> nodes;
  std::vector<DeviceMask> devices;  // of each of `nodes`
  friend bool operator==(const Promise&, const Promise&) = default;
};

// What so many nodes of a gang come to.
inline Amounts AmountsOf(const NodeDemand& node, int nodes) {
  return {.gpus = nodes * node.device_count(), .slots = nodes * node.ranks};
}

// A job that waits for a gang.
struct GangRequest {
  JobId job;
  int nodes = 1;      // 0: the job has its gang, and only spares are wanted
  int min_nodes = 0;  // a gang of fewer than `nodes` is allowed, down to this; 0: it is not
  int spares = 0;     // nodes beside the gang's, as many as there are
  NodeDemand demand;  // of each node
  int queue = 0;      // index in the tree
  int class_value = 0;
  int priority = 50;
  std::uint64_t submit_order = 0;
  Duration length = kForever;  // until its time limit ends it; kForever: it has none
  std::optional<Promise> promise;
  // Its turn among the jobs that were promised a start: the first one that it was promised, also
  // when nothing is planned for it any more; kNever: none yet.
  TimePoint turn = kNever;
  std::vector<NodeName> collecting;  // where it has collected devices until now
  std::vector<NodeName> exclude;
  std::vector<NodeName> former_nodes;  // of its last attempt, by node rank
  std::vector<NodeName> preferred;     // before others if former nodes have no room
  std::vector<HeldParts> held;
  std::vector<std::string> domains;  // of the nodes that it has, if it only wants spares
  std::string place;                 // where those are, at the level of demand.topology
  bool recovering = false;           // it ran until now: before all that did not
  // Its spares may be those of other jobs that say so too. While it recovers, a node of its gang
  // may be a shared spare.
  bool share_spares = false;
  bool preemptible = false;  // a node of its gang may be a lent part of a shared spare

  int least() const { return min_nodes > 0 && min_nodes < nodes ? min_nodes : nodes; }
  Amounts AmountsOf(int count) const { return muster::AmountsOf(demand, count); }
  // The same with what it is as a job, unless it counts already: it has its gang, or recovers.
  Amounts LoadOf(int count) const {
    Amounts load = AmountsOf(count);
    load.jobs = recovering || nodes == 0 ? 0 : 1;
    return load;
  }
};

}  // namespace muster
