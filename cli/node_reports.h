// What the nodes of a cluster say of their networks and devices, told once for all that say the
// same. Pure; any thread.
#pragma once

#include <string>

#include "muster/v1/client_api.pb.h"

namespace muster {

// For people: problems before all else, those of most nodes first; each line once, with the nodes
// that say it in Slurm's short form. A node's own address counts as the same everywhere and is
// written ADDRESS where several nodes share a line.
std::string NodeReportsText(const v1::ListNodesResponse& nodes);

}  // namespace muster
