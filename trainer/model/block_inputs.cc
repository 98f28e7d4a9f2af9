#include "trainer/model/block_inputs.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <optional>

namespace muster {

// Copies beside the device's current stream, in the order in which they were given, each with an
// event by which the current stream can wait for it.
class CopyStream {
 public:
  CopyStream(at::Device device, std::size_t slots) {
    if (device.is_cpu()) return;
    guard_.emplace(device.type());
    stream_ = guard_->getStreamFromGlobalPool(device);
    before_.emplace(device.type());
    for (std::size_t s = 0; s < slots; ++s) done_.emplace_back(device.type());
  }

  // Begins after what the current stream has been given so far.
  void Copy(const at::Tensor& from, at::Tensor& to, std::size_t slot) {
    if (!stream_) {
      to.copy_(from);
      return;
    }
    before_->record(guard_->getStream(stream_->device()));
    before_->block(*stream_);
    const c10::StreamGuard on(*stream_);
    to.copy_(from, /*non_blocking=*/true);
    done_[slot].record(*stream_);
  }

  // What the current stream is given from here on begins after the slot's last copy.
  void Wait(std::size_t slot) {
    if (stream_) done_[slot].block(guard_->getStream(stream_->device()));
  }

 private:
  std::optional<c10::impl::VirtualGuardImpl> guard_;
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> before_;
  std::vector<c10::Event> done_;  // by slot
};

namespace {

constexpr int kSlots = 2;  // one in use, one under way

}  // namespace

BlockInputs::BlockInputs(DeviceOps& ops, int blocks, Arena::Memory memory)
    : blocks_(blocks),
      memory_(memory),
      device_(ops),
      host_(ops, Arena::Memory::kHost),
      slots_(offloads() ? kSlots : blocks) {
  if (offloads()) copies_ = std::make_unique<CopyStream>(ops.device(), kSlots);
}

BlockInputs::~BlockInputs() = default;

void BlockInputs::Fit(std::int64_t tokens, std::int64_t hidden, at::ScalarType type) {
  device_.Fit([&](Cutter& cutter) {
    for (at::Tensor& slot : slots_) slot = cutter.Cut({tokens, hidden}, type);
  });
  if (!offloads()) return;
  offsite_.resize(std::max(0, blocks_ - kSlots));
  host_.Fit([&](Cutter& cutter) {
    for (at::Tensor& input : offsite_) input = cutter.Cut({tokens, hidden}, type);
  });
}

bool BlockInputs::LeavesDevice(int block) const { return offloads() && block < blocks_ - kSlots; }

at::Tensor& BlockInputs::Slot(int block) {
  if (offloads()) copies_->Wait(block % kSlots);
  return SlotOf(block);
}

void BlockInputs::Written(int block) {
  if (LeavesDevice(block)) copies_->Copy(SlotOf(block), offsite_[block], block % kSlots);
}

at::Tensor& BlockInputs::Fetch(int block) {
  if (LeavesDevice(block)) copies_->Wait(block % kSlots);
  // The slot of the block below was that of the block above, whose backward is all on the stream.
  const int next = block - 1;
  if (next >= 0 && LeavesDevice(next)) {
    copies_->Copy(offsite_[next], SlotOf(next), next % kSlots);
  }
  return SlotOf(block);
}

}  // namespace muster
