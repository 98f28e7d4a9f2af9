// Read-only views of the controller's state; controller.h documents each result.
//
// Pure; one thread.
#pragma once

#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/control/state.h"
#include "coordinator/control/views.h"

namespace muster::control {

Result<JobView> FindJob(const State& state, std::string_view job, const JobFilter& filter = {});
const Archive::Jobs::value_type* FindArchived(const State& state, std::string_view job,
                                              const JobFilter& filter = {});
std::vector<JobView> Jobs(const State& state);
std::vector<NodeView> Nodes(const State& state);
Result<LogLocation> LocateLog(const State& state, const JobView& view, int rank,
                              Generation generation);
int PendingJobs(const State& state);
Goodput ClusterGoodput(const State& state, TimePoint now, bool stored);

}  // namespace muster::control
