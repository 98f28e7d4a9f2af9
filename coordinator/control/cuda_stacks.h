// Whether the nodes of a gang can compute together on their GPUs.
//
// Different NCCL releases do not interoperate, and two builds of the plug-in may compute
// differently. This check turns both into one message before the launch instead of a hang or a
// wrong sum after it. Drivers may differ if each supports the plug-in's CUDA. Pure; any thread.
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
