// What each node of an allocation found out about itself and the others, and what of it helps or
// harms a job: whether they share a file system that does what Muster needs of it, reach each
// other, agree on the time, and got what Slurm says that they got.
//
// `muster slurm probe` makes a NodeProbe on each node, as one line of JSON; `muster slurm doctor`
// reads and judges them. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/slurm/doctor.h"

namespace muster::slurm {

struct NodeProbe {
  std::string node;
  std::vector<std::string> step;  // all nodes that were to probe, this one among them
  std::string address;            // numeric, at which the others can reach it

  // The shared directory.
  std::string shared_error;          // what could not be done there at all; empty: nothing
  std::vector<std::string> unseen;   // nodes whose files did not appear there
  bool made_exclusive_file = false;  // it made the file that only one can (O_EXCL),
  bool made_link = false;            // and the link

  std::vector<std::string> unreachable;              // nodes that it could not connect to
  std::map<std::string, std::int64_t> clock_offset;  // by node: its clock less this one's, in ms

  int slurm_gpus = 0;               // SLURM_GPUS_ON_NODE
  std::optional<int> visible_gpus;  // entries of CUDA_VISIBLE_DEVICES; nothing: it is not set
  int device_files = 0;             // /dev/nvidia0, ... that can be opened; 0: there are none
  int slurm_cpus = 0;               // SLURM_CPUS_ON_NODE; 0: not given
  int usable_cpus = 0;              // of its affinity
  std::string temporary;            // the node's own directory for temporary files
  std::int64_t temporary_free_mib = 0;

  friend bool operator==(const NodeProbe&, const NodeProbe&) = default;
};

// One line, without its end.
std::string ProbeLine(const NodeProbe& probe);
// Reads all that a step has printed; lines that are no probes are passed over.
std::vector<NodeProbe> ParseProbes(std::string_view output);

// `node_count`: how many were to answer.
std::vector<Finding> JudgeNodes(int node_count, const std::vector<NodeProbe>& probes);

}  // namespace muster::slurm
