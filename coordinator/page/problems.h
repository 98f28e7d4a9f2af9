// Problems: what of a cluster needs somebody, the worst first, in words.
//
// Pure; one thread. Says the same as the head of `muster top`.
#pragma once

#include <string>
#include <vector>

#include "coordinator/control/controller.h"
#include "coordinator/history/histories.h"

namespace muster {

struct Problem {
  // The worst first.
  enum class Kind {
    kFailed,
    kNotFinite,
    kRecovering,
    kNoProgress,
    kNodeLost,
    kNodeNotice,
    kWaiting
  };
  Kind kind = Kind::kWaiting;
  std::string text;     // a sentence without its full stop
  std::string command;  // to type next
  JobId job;            // empty: of a node
};

// Sorted, worst first.
std::vector<Problem> FindProblems(const std::vector<JobView>& jobs,
                                  const std::vector<NodeView>& nodes, const Histories& histories,
                                  const Now& now);

// The first ones and how many there are.
std::string ProblemsPart(const std::vector<Problem>& problems);

}  // namespace muster
