// BlockInputs: the hidden states that entered each block, kept from forward to backward.
//
// On the device, or in host memory with two slots on the device: then each input leaves for the
// host while its block and the next one run, and comes back while backward works on the block
// above. The copies run beside the device's work (DeviceOps::Copy).
//
// Forward: Place, write it, Written; blocks in order. Backward: Fetch; blocks in reverse order.
// The trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/model/arena.h"
#include "trainer/ops/device_ops.h"

namespace muster {

class BlockInputs {
 public:
  // `ops` outlives the object.
  BlockInputs(DeviceOps& ops, int blocks, Arena::Memory memory);
  // Inputs are [tokens, hidden] from here on; what was kept is lost.
  void Fit(std::int64_t tokens, std::int64_t hidden, at::ScalarType type);

  // Where the input of `block` is to be written.
  at::Tensor& Place(int block) { return Ready(block); }
  void Written(int block);
  at::Tensor& Fetch(int block);

  // What inputs of this shape take, without taking it: on the device, and in host memory where they
  // leave it.
  struct Bytes {
    std::int64_t device = 0;
    std::int64_t host = 0;
  };
  Bytes BytesFor(std::int64_t tokens, std::int64_t hidden, at::ScalarType type) const;

  std::int64_t device_bytes() const { return device_.bytes(); }
  std::int64_t host_bytes() const { return host_.bytes(); }

 private:
  struct Slot {
    at::Tensor input;                  // [tokens, hidden] on the device
    std::unique_ptr<DeviceCopy> copy;  // out of the slot or into it, under way
  };

  bool offloads() const { return memory_ == Arena::Memory::kHost; }
  std::size_t OffsiteCount() const;
  // The last inputs are still in their slots when backward begins.
  bool LeavesDevice(int block) const;
  Slot& SlotOf(int block) { return slots_[block % slots_.size()]; }
  // The slot's tensor, ready for what is put on the stream from here on.
  at::Tensor& Ready(int block);
  void Copy(const at::Tensor& to, const at::Tensor& from, Slot& slot);

  DeviceOps& ops_;
  const int blocks_;
  const Arena::Memory memory_;
  Arena device_;
  Arena host_;
  std::vector<Slot> slots_;          // one for each block, or two
  std::vector<at::Tensor> offsite_;  // by block, in host memory
};

}  // namespace muster
