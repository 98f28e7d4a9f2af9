// What of the controller's jobs and nodes needs somebody, as the status page says it; the words and
// their order are those of common/problems.
//
// Problems: owned by Overview; pure, one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/problems/problems.h"
#include "coordinator/control/controller.h"
#include "coordinator/history/histories.h"

namespace muster {

class Problems {
 public:
  // Sorted, worst first. Remembers of jobs that run which rank holds them up.
  std::vector<Problem> Find(const std::vector<JobView>& jobs, const std::vector<NodeView>& nodes,
                            const Histories& histories, const Now& now);

 private:
  const SlowRank* Watch(const JobView& view);

  std::map<JobId, SlowRankWatch> slow_;  // of jobs that run
};

// The first ones and how many there are.
std::string ProblemsPart(const std::vector<Problem>& problems);

}  // namespace muster
