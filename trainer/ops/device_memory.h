// What the memory of a device is used for, as LibTorch's allocator for such devices counts it.
#pragma once

#include <ATen/core/Tensor.h>

#include "common/control_pipe/training_figures.h"

namespace muster {

// All zero on the host, and where the allocator has no counts. What a device gave to others (NCCL,
// DeviceOps::Allocate) is in no count but that of what is in use: `capacity` less what is free is
// counted as reserved where it is more. The trainer's thread; some microseconds.
DeviceMemory ReadDeviceMemory(const at::Device& device);

}  // namespace muster
