// A device apart from the host for ATen as well, without one: tensors of LibTorch's spare device
// type (PrivateUse1) over memory of the host. What the engine does on a GPU happens here in full,
// down to every copy between host and device, and can be watched.
//
// Any thread, one at a time. The device type is the whole process's, so that tests that use it have
// a program of their own.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "trainer/ops/device_ops.h"

namespace muster::parity {

// Operators run at once, on the CPU; copies of DeviceOps::Copy happen as late as their waits allow.
std::unique_ptr<DeviceOps> MakeApartOps();

// Notes where, on the calling thread, an operation of ATen would make the host wait for all that
// the device has in hand: a value is read, or a copy between device and host blocks or has memory
// of the host that is not pinned. One at a time for each thread.
class WaitsOfHost {
 public:
  WaitsOfHost();
  ~WaitsOfHost();
  WaitsOfHost(const WaitsOfHost&) = delete;
  WaitsOfHost& operator=(const WaitsOfHost&) = delete;

  // Since the last call.
  std::vector<std::string> Take();

 private:
  std::vector<std::string> seen_;
};

}  // namespace muster::parity
