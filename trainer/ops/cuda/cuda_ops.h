// CudaOps: DeviceOps on one GPU.
//
// Kernels of ours on the current stream of LibTorch, LibTorch's fused attention, device memory for
// the whole run straight from the driver, pinned memory on the host. Copies between them run on a
// stream of their own, in order, beside the computation.
//
// The trainer's thread. CUDA's errors are Torch exceptions.
#pragma once

#include <memory>

#include "trainer/ops/device_ops.h"

namespace muster {

// Makes the device's context, and tries out the attention kernels.
std::unique_ptr<DeviceOps> MakeCudaOps(int device);

}  // namespace muster
