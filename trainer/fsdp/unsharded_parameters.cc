#include "trainer/fsdp/unsharded_parameters.h"

#include <utility>

#include "common/base/check.h"
#include "trainer/ops/no_throw.h"

namespace muster {

UnshardedParameters::UnshardedParameters(const FlatLayout& layout, const GatheredUnits& placed,
                                         Communicator* communicator, DeviceOps& ops,
                                         const GatherOptions& options)
    : layout_(layout),
      placed_(placed),
      communicator_(communicator),
      slices_(options.slices),
      ops_(ops),
      rank_(options.rank) {}

Result<std::unique_ptr<UnshardedParameters>> UnshardedParameters::Create(
    const FlatLayout& layout, const GatheredUnits& placed, Communicator* communicator,
    DeviceOps& ops, const GatherOptions& options) {
  std::unique_ptr<UnshardedParameters> weights(
      new UnshardedParameters(layout, placed, communicator, ops, options));
  MUSTER_RETURN_IF_ERROR(weights->Allocate(options));
  return weights;
}

Status UnshardedParameters::Allocate(const GatherOptions& options) {
  const auto bytes = static_cast<std::size_t>(placed_.buffer.bytes());
  if (placed_.buffer.memory == MemoryKind::kCommon) {
    MUSTER_ASSIGN_OR_RETURN(
        region_,
        communicator_->Share(RegionKind::kCommon, bytes + options.bytes_behind, options.kept_file));
    data_ = region_->data();
    return OkStatus();
  }
  if (placed_.holds_shards && options.allocate) {
    MUSTER_ASSIGN_OR_RETURN(memory_, options.allocate(bytes));
  } else {
    memory_ = ops_.Allocate(bytes);
  }
  data_ = memory_.data_ptr();
  return OkStatus();
}

UnshardedParameters::~UnshardedParameters() {
  NoThrow("a copy of weights to the device", [this] { Invalidate(); });
}

std::vector<void*> UnshardedParameters::OwnPlaces() const {
  std::vector<void*> places;
  for (int u = 0; u < static_cast<int>(layout_.units().size()); ++u) {
    places.push_back(placed_.holds_shards ? OwnPlace(u) : nullptr);
  }
  return places;
}

void UnshardedParameters::Prefetch(int unit) {
  Slot& slot = slots_[placed_.begins[unit]];
  if (slot.unit == unit) return;
  MUSTER_CHECK(slot.gather == nullptr, "a slot is gathered into twice at once");
  slot.unit = unit;
  const FlatUnit& flat = layout_.units()[unit];
  const ElementType type = placed_.buffer.type;
  const void* shard = sources_[unit];
  if (placed_.from_host) {
    slot.copy = ops_.Copy(OwnPlace(unit), shard,
                          static_cast<std::size_t>(flat.shard_count) * ElementSize(type));
    shard = OwnPlace(unit);
  }
  if (communicator_ == nullptr) return;
  if (slot.copy != nullptr) std::exchange(slot.copy, nullptr)->WaitOnDevice();
  slot.gather = Gather(unit, shard);
}

std::unique_ptr<Work> UnshardedParameters::Gather(int unit, const void* shard) {
  const FlatUnit& flat = layout_.units()[unit];
  const auto count = static_cast<std::size_t>(flat.shard_count);
  const ElementType type = placed_.buffer.type;
  if (flat.slices == 1) return communicator_->AllGather(shard, data(unit), count, type);
  // In the one array of all ranks shards are where they belong: it only waits for the peers.
  if (region_ != nullptr) return communicator_->AllGather(data_, data_, 0, type);
  return slices_->AllGather(shard, data(unit), count, type);
}

Status UnshardedParameters::Wait(int unit) {
  Prefetch(unit);
  Slot& slot = slots_[placed_.begins[unit]];
  if (slot.copy != nullptr) std::exchange(slot.copy, nullptr)->WaitOnDevice();
  if (slot.gather == nullptr) return OkStatus();
  const std::unique_ptr<Work> gather = std::move(slot.gather);
  const Status status = gather->Wait();
  if (!status.ok()) slot.unit = -1;
  return status;
}

void UnshardedParameters::Invalidate() {
  for (auto& [begin, slot] : slots_) {
    // A gather of a step that failed; no step that ends well leaves one.
    if (slot.gather != nullptr) (void)slot.gather->Wait();
    slot.gather.reset();
    if (slot.copy != nullptr) std::exchange(slot.copy, nullptr)->WaitOnHost();
    slot.unit = -1;
  }
}

std::int64_t UnshardedParameters::bytes() const { return memory_.defined() ? memory_.numel() : 0; }

}  // namespace muster
