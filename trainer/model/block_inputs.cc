#include "trainer/model/block_inputs.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace muster {
namespace {

constexpr int kSlots = 2;  // one in use, one under way

}  // namespace

BlockInputs::BlockInputs(DeviceOps& ops, int blocks, Arena::Memory memory)
    : ops_(ops),
      blocks_(blocks),
      memory_(memory),
      device_(ops),
      host_(ops, Arena::Memory::kHost),
      slots_(offloads() ? kSlots : blocks) {}

void BlockInputs::Fit(std::int64_t tokens, std::int64_t hidden, at::ScalarType type) {
  for (Slot& slot : slots_) {
    if (slot.copy) slot.copy->WaitOnHost();
    slot.copy.reset();
  }
  device_.Fit([&](BumpAllocator& allocator) {
    for (Slot& slot : slots_) slot.input = allocator.Cut({tokens, hidden}, type);
  });
  if (!offloads()) return;
  offsite_.resize(OffsiteCount());
  host_.Fit([&](BumpAllocator& allocator) {
    for (at::Tensor& input : offsite_) input = allocator.Cut({tokens, hidden}, type);
  });
}

std::size_t BlockInputs::OffsiteCount() const {
  return offloads() ? static_cast<std::size_t>(std::max(0, blocks_ - kSlots)) : 0;
}

BlockInputs::Bytes BlockInputs::BytesFor(std::int64_t tokens, std::int64_t hidden,
                                         at::ScalarType type) const {
  BumpAllocator device, host;
  for (std::size_t i = 0; i < slots_.size(); ++i) device.Cut({tokens, hidden}, type);
  for (std::size_t i = 0; i < OffsiteCount(); ++i) host.Cut({tokens, hidden}, type);
  return {.device = device.used(), .host = host.used()};
}

bool BlockInputs::LeavesDevice(int block) const { return offloads() && block < blocks_ - kSlots; }

at::Tensor& BlockInputs::Ready(int block) {
  Slot& slot = SlotOf(block);
  if (slot.copy) slot.copy->WaitOnDevice();
  slot.copy.reset();
  return slot.input;
}

void BlockInputs::Copy(const at::Tensor& to, const at::Tensor& from, Slot& slot) {
  slot.copy = ops_.Copy(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes());
}

void BlockInputs::Written(int block) {
  Slot& slot = SlotOf(block);
  if (LeavesDevice(block)) Copy(offsite_[block], slot.input, slot);
}

at::Tensor& BlockInputs::Fetch(int block) {
  at::Tensor& input = Ready(block);
  // The slot of the block below was that of the block above, whose backward is all on the stream.
  const int next = block - 1;
  if (next >= 0 && LeavesDevice(next)) Copy(SlotOf(next).input, offsite_[next], SlotOf(next));
  return input;
}

}  // namespace muster
