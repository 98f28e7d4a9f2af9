// Facts about jobs and nodes for the planner of pilots, read from the controller.
//
// Pure; the loop's thread.
#pragma once

#include "coordinator/control/controller.h"
#include "coordinator/pilots/pool_planner.h"

namespace muster {

// All facts except the pilots themselves. Needs are those of jobs that may use nodes now: not of
// jobs that are held or set aside, nor above the ceilings of their queues, nor of what gangs give
// way for. `avoid` are nodes that are quarantined, that a user has drained, or that are in the
// cluster without a pilot.
PoolFacts ReadPoolFacts(const Controller& controller);

}  // namespace muster
