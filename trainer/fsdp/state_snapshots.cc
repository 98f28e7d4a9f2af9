#include "trainer/fsdp/state_snapshots.h"

#include <utility>

#include "trainer/ops/no_throw.h"

namespace muster {

StateSnapshots::StateSnapshots(const ShardState& state, Segment& segment, DeviceOps& ops,
                               std::int64_t every)
    : state_(state), segment_(segment), ops_(ops), every_(every) {
  if (ops_.is_host()) return;
  for (int slot = 0; slot < kTrainingSlots; ++slot) {
    pinned_.push_back(ops_.PinHost(segment_.slot(slot), segment_.slot_bytes()));
  }
}

StateSnapshots::~StateSnapshots() {
  NoThrow("a copy of a snapshot", [this] {
    for (const auto& copy : copies_) copy->WaitOnHost();
  });
}

void StateSnapshots::Take(const TrainCursor& cursor) {
  if (taken_any_ && cursor.step % every_ != 0) return;
  taken_any_ = true;
  if (state_.in_segment()) {
    SealNow(cursor, state_.slot());
  } else if (!changed_) {
    SealNow(cursor, slot_);
  } else {
    arriving_ = cursor;
    StartCopies();
    if (ops_.is_host()) Complete();
  }
}

void StateSnapshots::StartCopies() {
  slot_ = segment_.FreeSlot(segment_.NewestSlot());
  segment_.Unseal(slot_);
  const std::vector<ShardArray> from = state_.CheckpointArrays();
  const std::vector<ShardArray> to = segment_.Arrays(slot_);
  for (std::size_t i = 0; i < from.size(); ++i) {
    copies_.push_back(ops_.Copy(to[i].data, from[i].data, from[i].bytes()));
  }
}

void StateSnapshots::Complete() {
  for (const auto& copy : copies_) copy->WaitOnHost();
  copies_.clear();
  if (arriving_) SealNow(*std::exchange(arriving_, std::nullopt), slot_);
}

void StateSnapshots::SealNow(const TrainCursor& cursor, int slot) {
  segment_.Seal(slot, cursor);
  if (buddy_ != nullptr) buddy_->Start(slot, cursor, changed_);
  changed_ = false;
}

Status StateSnapshots::Finish() {
  Complete();
  return buddy_ != nullptr ? buddy_->Finish() : OkStatus();
}

}  // namespace muster
