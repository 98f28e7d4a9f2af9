// BlockInputs: the hidden states that entered each block, kept from forward to backward.
//
// On the device, or in host memory with two slots on the device: then each input leaves for the
// host while its block and the next one run, and comes back while backward is one block behind.
// The copies have a stream of their own; a CPU, which has no streams, copies at once.
//
// Forward: Slot, write it, Written; blocks in order. Backward: Fetch; blocks in reverse order.
// The trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/device/device_ops.h"
#include "trainer/model/arena.h"

namespace muster {

class CopyStream;

class BlockInputs {
 public:
  BlockInputs(DeviceOps& ops, int blocks, Arena::Memory memory);
  ~BlockInputs();

  // Inputs are [tokens, hidden] from here on; what was kept is lost.
  void Fit(std::int64_t tokens, std::int64_t hidden, at::ScalarType type);

  at::Tensor& Slot(int block);
  void Written(int block);
  at::Tensor& Fetch(int block);

  std::int64_t device_bytes() const { return device_.bytes(); }
  std::int64_t host_bytes() const { return host_.bytes(); }

 private:
  bool offloads() const { return memory_ == Arena::Memory::kHost; }
  // The last inputs are still in their slots when backward begins.
  bool LeavesDevice(int block) const;
  at::Tensor& SlotOf(int block) { return slots_[block % slots_.size()]; }

  const int blocks_;
  const Arena::Memory memory_;
  Arena device_;
  Arena host_;
  std::vector<at::Tensor> slots_;    // one for each block, or two
  std::vector<at::Tensor> offsite_;  // by block, in host memory
  std::unique_ptr<CopyStream> copies_;
};

}  // namespace muster
