// Which of the controller's jobs and nodes need attention, for the status page; the texts and their
// order are those of common/problems.
//
// Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/problems/problems.h"
#include "coordinator/control/controller.h"
#include "coordinator/history/histories.h"

namespace muster {

// Sorted, worst first.
std::vector<Problem> FindProblems(const std::vector<JobView>& jobs,
                                  const std::vector<NodeView>& nodes, const Histories& histories,
                                  const Now& now);

// The first ones and how many there are.
std::string ProblemsPart(const std::vector<Problem>& problems);

}  // namespace muster
