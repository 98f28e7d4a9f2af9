// What `muster-trainer plan` says of a train job's memory.
//
// Blocks while that program runs; one thread.
#pragma once

#include <string>

#include "cli/client/ready_job.h"
#include "common/base/result.h"

namespace muster::verbs {

// What the program `trainer` prints of the plan, as JSON if `json`. `device`: as its --device;
// empty: by the job file. An error if there is no plan: the program is not there, cannot read the
// model, or prints something else.
Result<std::string> MemoryPlan(const std::string& trainer, const JobFileOptions& job,
                               const std::string& device, bool json);

}  // namespace muster::verbs
