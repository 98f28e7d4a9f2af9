// DeviceOps: one device of a kind: its memory, and the operators of a training step on it.
//
// The engine and the model are written once; what differs between a CPU and a GPU is behind this
// interface. Operators (trainer/ops/operators.h) are kernels of ours, one for each kind of device;
// matrix products are ATen's on all. MakeCpuOps (trainer/ops/cpu) makes the CPU's; the CUDA plug-in
// brings its own.
//
// Called by the trainer's thread. On a GPU every call returns before the work is done; it is
// ordered by the current stream. Shape and type errors are Torch exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <string>

#include "trainer/ops/array_checks.h"
#include "trainer/ops/operators.h"

namespace muster {

// A gradient that is written, or added to what is there. That of a norm's weight may be undefined:
// the weight is frozen, and nothing is computed for it.
struct GradientTarget {
  at::Tensor tensor;
  bool add = false;

  operator GradientArray() const { return {tensor, add}; }
};

// A copy between device and host memory under way. The memory stays until one of the waits.
class DeviceCopy {
 public:
  virtual ~DeviceCopy() = default;
  // Work that is put on the stream from here on begins after the copy.
  virtual void WaitOnDevice() = 0;
  // Returns when the copy is done.
  virtual void WaitOnHost() = 0;
};

class DeviceOps {
 public:
  virtual ~DeviceOps() = default;

  virtual at::Device device() const = 0;
  // For the log: instruction set or GPU, attention backend.
  virtual std::string Describe() const = 0;
  // Zeroed memory for the whole run, as bytes: a uint8 tensor aligned to pages.
  virtual at::Tensor Allocate(std::size_t bytes) = 0;
  // The same in host memory that the device can copy from and to while it computes.
  virtual at::Tensor AllocateHost(std::size_t bytes) = 0;
  // Makes host memory of the caller such memory, until the result goes. Null where it need not be.
  virtual std::shared_ptr<void> PinHost(void* memory, std::size_t bytes) = 0;
  // Whether Allocate's memory is the host's as well: then there is nothing to offload.
  virtual bool is_host() const = 0;
  // Between device memory and AllocateHost's or pinned one, or within either. Begins after all work
  // that was put on the stream before; copies end in the order they began. Any other host memory
  // will do where WaitOnHost follows at once.
  virtual std::unique_ptr<DeviceCopy> Copy(void* to, const void* from, std::size_t bytes) = 0;

  // Runs an operator: ops.Run(op::SwiGlu{gate_up, out}).
  template <typename Op>
  void Run(const Op& op) {
    op.Check(ArrayChecks(device().type()));
    RunKernel(AnyOperator(op));
  }
  // The device's part of Run: the arguments have been checked.
  virtual void RunKernel(const AnyOperator& op) = 0;
};

}  // namespace muster
