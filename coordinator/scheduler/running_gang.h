// RunningGang: a gang that has nodes, as far as others wait for its end or may make it give way;
// Reclaim: that it does.
//
// Plain values; any thread.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "coordinator/queues/queue_tree.h"
#include "coordinator/scheduler/gang_request.h"
#include "coordinator/scheduler/step_function.h"

namespace muster {

struct RunningGang {
  JobId job;
  int queue = 0;
  int class_value = 0;
  Amounts amounts;               // spares included; one job, unless it is only what another gives
  TimePoint ends = kNever;       // by its time limit or for a claimant; kNever: no end is known
  std::vector<HeldParts> parts;  // that are free then: of its nodes, then of its spares
  JobId gives_way_to;            // it saves its state and stops for that job; empty: for none

  // How it would give way.
  TimePoint victim_from = kNever;         // from then on it may be a victim; kNever: it may not
  TimePoint placed;                       // when it came from the queue
  int nodes = 0;                          // without spares
  int least_nodes = 0;                    // that it goes on with; `nodes`: with all of them only
  Amounts node_amounts;                   // of one node
  Duration leaves_in = Duration::zero();  // to save and to stop, at most
  double cost = 0;                        // rank-seconds
};

enum class ReclaimCause {
  kClass,      // the claimant's class is higher
  kGuarantee,  // the claimant's queue stays within its guarantee, and the victim's borrows
};
inline std::string_view Name(ReclaimCause cause) {
  return cause == ReclaimCause::kClass ? "class" : "guarantee";
}

// "114 rank-seconds".
inline std::string CostText(double rank_seconds) {
  return std::to_string(std::llround(rank_seconds)) + " rank-seconds";
}

struct Reclaim {
  JobId victim;
  int to_nodes = 0;                // that it goes on with; 0: it goes back to the queue
  std::vector<NodeName> gives_up;  // if it goes on: the others
  JobId claimant;
  ReclaimCause cause = ReclaimCause::kClass;
  double cost = 0;  // rank-seconds
};

}  // namespace muster
