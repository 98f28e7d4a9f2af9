// Invented GPUs of a node, for tests of placement on machines without any (muster-worker
// --fake-gpus FILE). Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "worker/fabric/node_devices.h"

namespace muster::worker {

// `yaml` is a list of entries such as {count: 8, kind: NVIDIA H100 80GB HBM3, memory: 80GB,
// numa: 0, nvlink: "0", uuid: GPU-1}; all keys but count have defaults, and count is 1 by default.
// Without a uuid a GPU's id is "FAKE-NODE-INDEX". kInvalidArgument: "name:line: key: message".
Result<std::vector<NodeDevice>> ParseFakeGpus(std::string_view yaml, const std::string& name,
                                              const std::string& node);

}  // namespace muster::worker
