// ForwardingOps: passes everything on to another DeviceOps. Tests and measurements derive from it
// and override what they watch or replace.
#pragma once

#include <memory>
#include <string>

#include "trainer/ops/device_ops.h"

namespace muster {

class ForwardingOps : public DeviceOps {
 public:
  // `to` outlives the object.
  explicit ForwardingOps(DeviceOps& to) : to_(to) {}

  at::Device device() const override { return to_.device(); }
  std::string Describe() const override { return to_.Describe(); }
  at::Tensor Allocate(std::size_t bytes) override { return to_.Allocate(bytes); }
  at::Tensor AllocateHost(std::size_t bytes) override { return to_.AllocateHost(bytes); }
  std::shared_ptr<void> PinHost(void* memory, std::size_t bytes) override {
    return to_.PinHost(memory, bytes);
  }
  bool is_host() const override { return to_.is_host(); }
  std::unique_ptr<DeviceCopy> Copy(void* to, const void* from, std::size_t bytes) override {
    return to_.Copy(to, from, bytes);
  }
  void RunKernel(const AnyOperator& op) override { to_.RunKernel(op); }

 private:
  DeviceOps& to_;
};

}  // namespace muster
