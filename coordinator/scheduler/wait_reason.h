// WaitReason: why a waiting job gets no gang now, as numbers that can be compared and counted;
// NearestMiss: why it never would. Each has its sentence.
//
// Plain values and pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/ids.h"
#include "common/resources/node_demand.h"
#include "coordinator/queues/queue_tree.h"
#include "coordinator/scheduler/node_fit.h"

namespace muster {

struct WaitReason {
  int nodes = 1;      // that its gang has at least
  NodeDemand demand;  // of each
  int ready = 0;      // nodes that are ready
  // Ready nodes, each counted once, in this order:
  int excluded = 0;       // by the job file, or because they could not run the job
  LackCounts unsuited{};  // by what they lack even if they are empty
  int reserved = 0;       // a job ahead of it waits for what they have, now or later
  JobId reserved_for;     // the last of those jobs
  LackCounts occupied{};  // by what they have too little of that is free
  int with_room = 0;      // the others
  int in_one_place = 0;   // of those, at most, where all must be in one block, rack or switch
  bool collects = false;  // what becomes free is kept for it, because no end of others is known
  // The queue whose ceiling it would exceed now, or the leaf of its user there; empty: none.
  std::string over_ceiling;
  Amounts used, ceiling;  // of the user
  friend bool operator==(const WaitReason&, const WaitReason&) = default;
};

// "needs 2 nodes with 1 free slot each; 1 ready node has room".
std::string WaitText(const WaitReason& reason);

// "ada has 8 of the 8 GPUs that one user may have in queue nlp": a user's ceiling, which that much
// more would exceed.
std::string UserCeilingText(std::string_view share, const Amounts& used, const Amounts& more,
                            const Amounts& ceiling);

// A node that misses a demand, and by what.
struct NearestMiss {
  NodeDemand demand;
  NodeName node;
  Lack lack = Lack::kNothing;
  bool excluded = false;  // it lacks nothing, and the job file excludes it
  NodeParts parts;        // of the node, if it is empty
  int suitable_devices = 0;
};

// For the nearest one of `nodes`: "no node can hold it: it needs 8 GPUs per node; n3 comes nearest
// and has 4".
std::string MissText(const NearestMiss& nearest, int nodes);

}  // namespace muster
