// Which ranks stop a gang's progress: the wait-for graph from the progress pages.
//
// A rank that waits in a collective has joined it; it waits for the ranks that have not joined.
// Pure
// functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/wire/messages.h"

namespace muster {

struct HangCulprits {
  std::vector<int> ranks;  // by rank; never empty
  std::string reason;      // a sentence without its full stop
};

// The culprits among the ranks that still have a process, at least one; `nodes` by rank. In this
// order: stopped processes; ranks that are behind in starting up; ranks that are behind in joining
// the collectives of a group; ranks that are behind in completing them (a link or a device); else
// ranks in no collective while others wait in one; else all.
HangCulprits FindCulprits(const std::vector<RankProgress>& ranks,
                          const std::vector<NodeName>& nodes);

// "world: 812 enqueued, 811 completed", of the group in which the rank waits, else of the one with
// the most operations; empty if there is none.
std::string DescribeLastCollective(const RankProgress& rank);

// "rank 1 on n2".
std::string RankOnNode(int rank, const std::vector<NodeName>& nodes);

}  // namespace muster
