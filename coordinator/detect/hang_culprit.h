// Which ranks keep a gang from going on: the wait-for picture of the progress pages.
//
// A rank that waits in a collective has joined it; whoever has not joined is waited for. Pure
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

// Of the ranks that still have a process, at least one; `nodes` by rank. In this order: processes
// that are stopped; those behind in starting up; those behind in joining the collectives of a
// group; those behind in completing them (a link or a device); else those in no collective at all
// while others wait in one; else all.
HangCulprits FindCulprits(const std::vector<RankProgress>& ranks,
                          const std::vector<NodeName>& nodes);

// "world: 812 enqueued, 811 completed", of the group the rank waits in, else of the one that did
// the most; empty without any.
std::string DescribeLastCollective(const RankProgress& rank);

// "rank 1 on n2".
std::string RankOnNode(int rank, const std::vector<NodeName>& nodes);

}  // namespace muster
