// What holds of the controller's state between two events. For tests and the simulation, which
// check after each event: the cost grows with the number of jobs and nodes.
//
// Pure; one thread.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "coordinator/control/state.h"

namespace muster::control {

// The first invariant that is broken, as a sentence; empty: none.
std::string BrokenInvariant(const State& state);

}  // namespace muster::control
