// The probe of one node of an allocation, for `muster slurm doctor`: one process per node (srun)
// meets the others in a directory that all should share, connects to them, compares clocks, and
// reads what Slurm assigned to it.
//
//   DIR/INDEX.json  {"address"} of each; DIR/INDEX.done once it has asked the others
//   DIR/exclusive, DIR/link  which one of them makes
//
// Blocks for some seconds, and for at most three times the timeout when other nodes are missing.
// One thread, and one that answers the other nodes.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/slurm/allocation.h"
#include "common/slurm/doctor_nodes.h"

namespace muster {

struct ProbeOptions {
  std::string dir;        // new for each probe, created by the caller
  std::string interface;  // as of muster-worker --interface
  Duration timeout = std::chrono::seconds(20);
};

slurm::NodeProbe ProbeNode(const slurm::Allocation& allocation, const ProbeOptions& options);

}  // namespace muster
