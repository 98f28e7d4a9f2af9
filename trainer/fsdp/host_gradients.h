// HostGradients: the way of reduced gradients from the device to sums in host memory (cpu_offload).
//
// A unit's reduced gradient lies in one of three places on the device; Start sends it to the host,
// where it overwrites or is added to the unit's sum. The places take turns, so a gradient travels
// while the next one is being computed.
//
// The trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>

#include "trainer/fsdp/placement.h"
#include "trainer/ops/device_ops.h"

namespace muster {

class HostGradients {
 public:
  // `buffer`: of all places, GradientBuffers::travelling. `device` and `host` outlive the object.
  HostGradients(DeviceOps& device, DeviceOps& host, const FlatBuffer& buffer);

  // The place after the one given last, for the longest shard; waits for the copy that is leaving
  // it. At most kTravellingGradients - 1 others may have been taken and not started yet.
  void* TakePlace();
  // Sends the place that TakePlace gave last, or an older one, to `sum`.
  void Start(void* place, void* sum, std::int64_t count, bool add);
  // Until everything has arrived and been added.
  void Finish();

  std::int64_t device_bytes() const { return device_memory_.numel(); }

 private:
  struct Place {
    void* device = nullptr;
    void* landing = nullptr;  // in host memory
    std::unique_ptr<DeviceCopy> copy;
    void* sum = nullptr;
    std::int64_t count = 0;
    bool add = false;
  };
  void Settle(Place& place);

  DeviceOps& device_;
  DeviceOps& host_;
  const ElementType type_;
  at::Tensor device_memory_;
  at::Tensor host_memory_;
  std::array<Place, kTravellingGradients> places_;
  int next_ = 0;
};

}  // namespace muster
