// Facts about jobs and nodes for the planner of pilots, read from the controller.
//
// Owned by the server, loop's thread.
#pragma once

#include <map>

#include "common/job_spec/job_spec.h"
#include "coordinator/control/controller.h"
#include "coordinator/pilots/pool_planner.h"

namespace muster {

class PoolFactsReader {
 public:
  // All facts except the pilots themselves. `avoid` are nodes that are quarantined, that a user has
  // drained, or that are in the cluster without a pilot.
  PoolFacts Read(const Controller& controller);

 private:
  const ResourceSpec& ResourcesOf(const JobRecord& job);

  std::map<JobId, ResourceSpec> resources_;  // of jobs that are not over
};

}  // namespace muster
