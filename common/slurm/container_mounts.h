// Directories of a job that a container has to have under their own names, beside what its user
// mounts there anyway.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"

namespace muster::slurm {

// Those of `needed` that are neither mounted by `given`, nor below what is. Each of `given` is a
// list by commas of SOURCE[:TARGET[:OPTIONS]], as Apptainer's --bind and pyxis's --container-mounts
// take it. kInvalidArgument for a directory whose name such a list cannot hold.
Result<std::vector<std::string>> MissingMounts(const std::vector<std::string>& needed,
                                               const std::vector<std::string>& given);

}  // namespace muster::slurm
