// The CPU as a device: memory of the host, and a kernel for each operator.
#pragma once

#include <memory>

#include "trainer/ops/device_ops.h"

namespace muster {

std::unique_ptr<DeviceOps> MakeCpuOps();

}  // namespace muster
