// Whether the nodes of a gang can compute together on their GPUs.
//
// NCCL's releases do not talk to each other, and two builds of the plug-in may not compute alike:
// found here, both are one sentence before the launch instead of a hang or a wrong sum after it.
// Drivers may differ, as long as each supports the plug-in's CUDA. Pure; any thread.
#pragma once

#include <vector>

#include "common/base/cuda_stack.h"
#include "common/base/status.h"
#include "coordinator/domain/records.h"

namespace muster {

struct NodeStack {
  NodeName node;
  CudaStack stack;
};

// kFailedPrecondition names the nodes and their versions.
Status CheckCudaStacks(const std::vector<NodeStack>& nodes);

}  // namespace muster
