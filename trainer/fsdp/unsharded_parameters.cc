#include "trainer/fsdp/unsharded_parameters.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "trainer/ops/no_throw.h"

namespace muster {

std::array<std::int64_t, 4> GatherSlotCounts(const FlatLayout& layout) {
  const std::vector<FlatUnit>& units = layout.units();
  std::array<std::int64_t, 4> counts = {0, 0, units.front().flat_count, units.back().flat_count};
  for (std::size_t u = 1; u + 1 < units.size(); ++u)
    counts[u % 2] = std::max(counts[u % 2], units[u].flat_count);
  return counts;
}

UnshardedParameters::UnshardedParameters(const FlatLayout& layout, Communicator* communicator,
                                         DeviceOps& ops, GatherOptions options)
    : layout_(layout), communicator_(communicator), ops_(ops), options_(options) {}

Result<std::unique_ptr<UnshardedParameters>> UnshardedParameters::Create(const FlatLayout& layout,
                                                                         Communicator* communicator,
                                                                         DeviceOps& ops,
                                                                         GatherOptions options) {
  std::unique_ptr<UnshardedParameters> weights(
      new UnshardedParameters(layout, communicator, ops, options));
  MUSTER_RETURN_IF_ERROR(weights->PlaceResident());
  if (!weights->resident_) weights->PlaceSlots();
  return weights;
}

// Leaves resident_ false where slots are to be used.
Status UnshardedParameters::PlaceResident() {
  // What was offloaded must not be on the device all the time.
  if (options_.from_host && options_.reshard_after_forward) return OkStatus();
  std::int64_t total = 0;
  for (const FlatUnit& unit : layout_.units()) total += unit.flat_count;
  const std::size_t bytes = static_cast<std::size_t>(total) * ElementSize(options_.type);
  if (communicator_ != nullptr && !options_.from_host) {
    auto region = communicator_->Share(RegionKind::kCommon, bytes + options_.bytes_behind,
                                       options_.kept_file);
    if (region.ok()) {
      region_ = *std::move(region);
    } else if (region.status().code() != StatusCode::kUnimplemented) {
      return region.status();
    } else if (options_.reshard_after_forward) {
      return OkStatus();
    }
  }
  resident_ = true;
  if (region_ == nullptr && options_.allocate && !options_.from_host) {
    MUSTER_ASSIGN_OR_RETURN(memory_, options_.allocate(bytes));
  } else if (region_ == nullptr) {
    memory_ = ops_.Allocate(bytes);
  }
  auto* next = static_cast<char*>(region_ != nullptr ? region_->data() : memory_.data_ptr());
  for (std::size_t u = 0; u < layout_.units().size(); ++u) {
    slots_.push_back({.data = next});
    slot_of_.push_back(static_cast<int>(u));
    next += layout_.units()[u].flat_count * static_cast<std::int64_t>(ElementSize(options_.type));
  }
  return OkStatus();
}

void UnshardedParameters::PlaceSlots() {
  const int last = static_cast<int>(layout_.units().size()) - 1;
  const std::array<std::int64_t, 4> counts = GatherSlotCounts(layout_);
  slot_of_.push_back(2);
  for (int u = 1; u < last; ++u) slot_of_.push_back(u % 2);
  slot_of_.push_back(3);
  const auto element = static_cast<std::int64_t>(ElementSize(options_.type));
  memory_ = ops_.Allocate((counts[0] + counts[1] + counts[2] + counts[3]) * element);
  auto* next = static_cast<char*>(memory_.data_ptr());
  for (const std::int64_t count : counts) {
    slots_.push_back({.data = next});
    next += count * element;
  }
}

UnshardedParameters::~UnshardedParameters() {
  NoThrow("a copy of weights to the device", [this] { Invalidate(); });
}

std::vector<void*> UnshardedParameters::OwnPlaces() const {
  std::vector<void*> places(layout_.units().size(), nullptr);
  if (!resident_ || options_.from_host) return places;
  for (std::size_t u = 0; u < places.size(); ++u) {
    places[u] = OwnPlaceIn(slots_[u], static_cast<int>(u));
  }
  return places;
}

void* UnshardedParameters::OwnPlaceIn(const Slot& slot, int unit) const {
  return static_cast<char*>(slot.data) + options_.rank * layout_.units()[unit].shard_count *
                                             static_cast<std::int64_t>(ElementSize(options_.type));
}

void UnshardedParameters::Prefetch(int unit) {
  Slot& slot = slots_[slot_of_[unit]];
  if (slot.unit == unit) return;
  MUSTER_CHECK(slot.gather == nullptr, "a slot is gathered into twice at once");
  slot.unit = unit;
  const void* shard = sources_[unit];
  if (options_.from_host) {
    SendFromHost(slot, unit);
    shard = OwnPlaceIn(slot, unit);
  }
  if (communicator_ == nullptr) return;
  if (slot.copy != nullptr) std::exchange(slot.copy, nullptr)->WaitOnDevice();
  slot.gather =
      communicator_->AllGather(shard, slot.data, layout_.units()[unit].shard_count, options_.type);
}

void UnshardedParameters::SendFromHost(Slot& slot, int unit) {
  const auto bytes =
      static_cast<std::size_t>(layout_.units()[unit].shard_count) * ElementSize(options_.type);
  slot.copy = ops_.Copy(OwnPlaceIn(slot, unit), sources_[unit], bytes);
}

Status UnshardedParameters::Wait(int unit) {
  Prefetch(unit);
  Slot& slot = slots_[slot_of_[unit]];
  if (slot.copy != nullptr) std::exchange(slot.copy, nullptr)->WaitOnDevice();
  if (slot.gather == nullptr) return OkStatus();
  const std::unique_ptr<Work> gather = std::move(slot.gather);
  const Status status = gather->Wait();
  if (!status.ok()) slot.unit = -1;
  return status;
}

void UnshardedParameters::Invalidate() {
  for (Slot& slot : slots_) {
    // A gather of a step that failed; no step that ends well leaves one.
    if (slot.gather != nullptr) (void)slot.gather->Wait();
    slot.gather.reset();
    if (slot.copy != nullptr) std::exchange(slot.copy, nullptr)->WaitOnHost();
    slot.unit = -1;
  }
}

std::int64_t UnshardedParameters::bytes() const { return memory_.defined() ? memory_.numel() : 0; }

}  // namespace muster
