#include "trainer/sharding/gradient_reducer.h"

#include <algorithm>

namespace muster {
namespace {

// A slot serves units of different layouts: what lies between the tensors of this one may be
// another unit's gradient.
void ZeroPadding(const FlatUnit& unit, float* flat) {
  std::int64_t end = 0;
  for (const FlatTensor& tensor : unit.tensors) {
    std::fill(flat + end, flat + tensor.offset, 0.0f);
    end = tensor.offset + tensor.count;
  }
  std::fill(flat + end, flat + unit.flat_count, 0.0f);
}

}  // namespace

GradientReducer::GradientReducer(const FlatLayout& layout, const ShardState& state,
                                 Communicator& communicator)
    : layout_(layout),
      state_(state),
      communicator_(communicator),
      reduced_(layout.units().size(), false) {
  if (layout.world_size() == 1) return;
  std::int64_t largest = 0;
  for (const FlatUnit& unit : layout.units()) largest = std::max(largest, unit.flat_count);
  for (Slot& slot : slots_) slot.memory = HostBuffer(largest * sizeof(float));
}

GradientReducer::~GradientReducer() {
  for (Slot& slot : slots_) {
    if (slot.reduction != nullptr) (void)slot.reduction->Wait();
  }
}

void GradientReducer::StartStep() {
  for (Slot& slot : slots_) {
    if (slot.reduction != nullptr) (void)slot.reduction->Wait();
    slot.reduction.reset();
  }
  reduced_.assign(reduced_.size(), false);
}

Result<GradientReducer::Target> GradientReducer::Begin(int unit) {
  if (layout_.world_size() == 1) {
    return Target{.flat = state_.units()[unit].gradient, .add = reduced_[unit]};
  }
  Slot& slot = slots_[next_slot_];
  MUSTER_RETURN_IF_ERROR(Settle(slot));
  return Target{.flat = slot.memory.floats(), .add = false};
}

void GradientReducer::Reduce(int unit) {
  const bool add = reduced_[unit];
  reduced_[unit] = true;
  if (layout_.world_size() == 1) return;
  Slot& slot = slots_[next_slot_];
  next_slot_ = 1 - next_slot_;
  ZeroPadding(layout_.units()[unit], slot.memory.floats());
  slot.unit = unit;
  slot.add = add;
  float* const result = add ? OwnPlace(slot, unit) : state_.units()[unit].gradient;
  slot.reduction =
      communicator_.ReduceScatter({.full = slot.memory.data(),
                                   .shard = result,
                                   .count = static_cast<std::size_t>(state_.units()[unit].count)});
}

Status GradientReducer::Finish() {
  // The older one first: reductions end in the order they were issued.
  MUSTER_RETURN_IF_ERROR(Settle(slots_[next_slot_]));
  return Settle(slots_[1 - next_slot_]);
}

Status GradientReducer::Settle(Slot& slot) {
  if (slot.reduction == nullptr) return OkStatus();
  const std::unique_ptr<Work> reduction = std::move(slot.reduction);
  MUSTER_RETURN_IF_ERROR(reduction->Wait());
  if (!slot.add) return OkStatus();
  const UnitShard& shard = state_.units()[slot.unit];
  const float* sum = OwnPlace(slot, slot.unit);
  for (std::int64_t i = 0; i < shard.count; ++i) shard.gradient[i] += sum[i];
  return OkStatus();
}

float* GradientReducer::OwnPlace(const Slot& slot, int unit) const {
  return slot.memory.floats() + communicator_.rank() * state_.units()[unit].count;
}

}  // namespace muster
