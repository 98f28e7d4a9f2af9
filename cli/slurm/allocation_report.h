// The report of the coordinator inside a job's allocation, for `muster slurm status`.
//
// AskAllocation blocks for some seconds at most; the rest are pure functions. One thread.
#pragma once

#include <optional>
#include <string>

#include "cli/base/output.h"
#include "cli/client/cluster_client.h"
#include "cli/slurm/slurm_job.h"

namespace muster {

struct AllocationReport {
  v1::Job job;
  int nodes_ready = 0;
  int nodes = 0;  // that ever came
};

// The id of the one job of an allocation. kNotFound: it was not submitted there yet.
Result<std::string> JobOfAllocation(ClusterClient& client);

// None when no coordinator answers within some seconds. `dir` is the user's cluster directory.
std::optional<AllocationReport> AskAllocation(const SlurmJob& job, const std::string& dir,
                                              Interrupt& interrupt);

Json ReportJson(const AllocationReport& report);
// "running, step 120/200, loss 2.5000, 2 of 3 nodes ready, generation 2, recovered in 1.2 s
// (spare)"
std::string ReportText(const AllocationReport& report);

}  // namespace muster
