// What of a machine helps or harms Muster, and what to change: docs/doctor.md lists the checks.
//
// Pure; any thread.
#pragma once

#include <vector>

#include "cli/machine/machine_facts.h"
#include "common/base/finding.h"

namespace muster {

// One finding per check and per peer, in the order of the documentation.
std::vector<Finding> JudgeMachine(const MachineFacts& facts);

}  // namespace muster
