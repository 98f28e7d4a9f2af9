// DcgmJobMapping: lists for NVIDIA's dcgm-exporter which runs use which GPUs, so that its series
// carry them (label hpc_job).
//
// Format of the folder, as dcgm-exporter's --hpc-job-mapping-dir reads it
// (https://github.com/NVIDIA/dcgm-exporter): a file for each GPU, named by its index, whose lines
// are the ids of the jobs on it. Files are replaced as one step, and the exporter skips files with
// other names.
//
// The folder's files of this node's GPUs belong to the worker: Begin removes those of an earlier
// one, the destructor its own. Blocking; any one thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace muster::worker {

class DcgmJobMapping {
 public:
  using RunsOfGpu = std::map<int, std::set<std::string>>;

  // `gpus`: the indices of those that this worker gives to ranks; -1, unknown, is left out.
  DcgmJobMapping(std::string dir, std::vector<int> gpus);
  ~DcgmJobMapping();
  DcgmJobMapping(const DcgmJobMapping&) = delete;
  DcgmJobMapping& operator=(const DcgmJobMapping&) = delete;

  // Makes the folder if it is missing.
  Status Begin();
  // Writes what has changed; a GPU that is not named has no run. Tries all, returns the first
  // error.
  Status Set(const RunsOfGpu& runs);

 private:
  std::string PathOf(int gpu) const;

  const std::string dir_;
  const std::vector<int> gpus_;
  RunsOfGpu written_;
};

}  // namespace muster::worker
