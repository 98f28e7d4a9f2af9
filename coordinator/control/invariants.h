// What holds of the controller's state between two events. For tests and the simulation, which look
// after each event: it costs as much as there are jobs and nodes.
//
// Pure; one thread.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "coordinator/control/state.h"

namespace muster::control {

// The first that is broken, as a sentence; empty: none. `suspect_after` is that of the options.
std::string BrokenInvariant(const State& state, Duration suspect_after);

}  // namespace muster::control
