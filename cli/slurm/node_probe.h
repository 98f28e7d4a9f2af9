// What a node of an allocation finds out about itself and the other nodes, for `muster slurm
// doctor`: one process per node (srun) meets the others in a directory that all are to share,
// connects to them, compares clocks, and looks at what Slurm gave it.
//
//   DIR/INDEX.json  {"address"} of each; DIR/INDEX.done once it has asked the others
//   DIR/exclusive, DIR/link  which one of them makes
//
// Blocks for some seconds, for at most three times the timeout where others do not come; one
// thread, and one that answers the others meanwhile.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/slurm/allocation.h"
#include "common/slurm/doctor_nodes.h"

namespace muster {

struct ProbeOptions {
  std::string dir;        // new for each probe, made by whoever starts it
  std::string interface;  // as of muster-worker --interface
  Duration timeout = std::chrono::seconds(20);
};

slurm::NodeProbe ProbeNode(const slurm::Allocation& allocation, const ProbeOptions& options);

}  // namespace muster
