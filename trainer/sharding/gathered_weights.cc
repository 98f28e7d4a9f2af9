#include "trainer/sharding/gathered_weights.h"

#include <algorithm>

#include "common/base/check.h"

namespace muster {

GatheredWeights::GatheredWeights(const FlatLayout& layout, const ShardState& state,
                                 Communicator& communicator)
    : layout_(layout), state_(state), communicator_(communicator) {
  const int units = static_cast<int>(layout.units().size());
  const int last = units - 1;
  if (layout.world_size() == 1) {
    for (int u = 0; u < units; ++u) {
      slots_.push_back({.data = const_cast<void*>(state.units()[u].GatherSource()), .unit = u});
      slot_of_.push_back(u);
    }
    return;
  }
  std::int64_t slot_counts[2] = {0, 0};
  for (int u = 1; u < last; ++u) {
    slot_counts[u % 2] = std::max(slot_counts[u % 2], layout.units()[u].flat_count);
    slot_of_.push_back(u % 2);
  }
  slot_of_.insert(slot_of_.begin(), 2);
  slot_of_.push_back(3);
  const std::int64_t counts[] = {slot_counts[0], slot_counts[1], layout.units()[0].flat_count,
                                 layout.units()[last].flat_count};
  for (const std::int64_t count : counts) {
    Slot slot{.memory = HostBuffer(count * ElementSize(state.compute_type()))};
    slot.data = slot.memory.data();
    slots_.push_back(std::move(slot));
  }
}

GatheredWeights::~GatheredWeights() {
  for (Slot& slot : slots_) {
    if (slot.gather != nullptr) (void)slot.gather->Wait();
  }
}

void GatheredWeights::Prefetch(int unit) {
  Slot& slot = slots_[slot_of_[unit]];
  if (slot.unit == unit) return;
  MUSTER_CHECK(slot.gather == nullptr, "a slot is gathered into twice at once");
  slot.unit = unit;
  slot.gather = communicator_.AllGather(state_.units()[unit].GatherSource(), slot.data,
                                        state_.units()[unit].count, state_.compute_type());
}

Status GatheredWeights::Wait(int unit) {
  Prefetch(unit);
  Slot& slot = slots_[slot_of_[unit]];
  if (slot.gather == nullptr) return OkStatus();
  const std::unique_ptr<Work> gather = std::move(slot.gather);
  const Status status = gather->Wait();
  if (!status.ok()) slot.unit = -1;
  return status;
}

void GatheredWeights::Invalidate() {
  if (layout_.world_size() == 1) return;  // the buffers are the shards
  for (Slot& slot : slots_) {
    // Of a step that failed; no step that ends well leaves one.
    if (slot.gather != nullptr) (void)slot.gather->Wait();
    slot.gather.reset();
    slot.unit = -1;
  }
}

}  // namespace muster
