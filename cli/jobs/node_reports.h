// The reports of a cluster's nodes about their networks and devices, equal lines once. Pure; any
// thread.
#pragma once

#include <string>

#include "muster/v1/client_api.pb.h"

namespace muster {

// For people: problems first, those of the most nodes before the others; each line once, with its
// nodes in Slurm's short form. A node's own address counts as equal to any other node's, and is
// written ADDRESS where several nodes share a line.
std::string NodeReportsText(const v1::ListNodesResponse& nodes);

}  // namespace muster
