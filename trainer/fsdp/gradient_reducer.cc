#include "trainer/fsdp/gradient_reducer.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trainer/ops/convert.h"
#include "trainer/ops/no_throw.h"

namespace muster {

GradientReducer::GradientReducer(const Placement& placement, const ShardState& state,
                                 const Mesh& mesh, DeviceOps& ops, DeviceOps* host_ops,
                                 bool every_micro_batch)
    : parts_(placement.parts),
      state_(state),
      mesh_(mesh),
      ops_(ops),
      host_ops_(host_ops),
      every_micro_batch_(every_micro_batch),
      compute_(state.precision().compute),
      gradient_(state.precision().gradient),
      units_(placement.trained.units()),
      sharded_(mesh.shard() != nullptr),
      placed_(placement.gradients),
      touched_(parts_.size(), false) {
  for (const FlatUnit& unit : parts_) {
    std::vector<Interval>& gaps = gaps_.emplace_back();
    std::int64_t end = 0;
    for (const FlatTensor& tensor : unit.tensors) {
      if (tensor.offset > end) gaps.push_back({end, tensor.offset});
      end = tensor.elements().end;
    }
    if (unit.flat_count > end) gaps.push_back({end, unit.flat_count});
  }
}

Result<std::unique_ptr<GradientReducer>> GradientReducer::Create(const Placement& placement,
                                                                 const ShardState& state,
                                                                 const Mesh& mesh, DeviceOps& ops,
                                                                 DeviceOps* host_ops,
                                                                 bool every_micro_batch) {
  std::unique_ptr<GradientReducer> reducer(
      new GradientReducer(placement, state, mesh, ops, host_ops, every_micro_batch));
  MUSTER_RETURN_IF_ERROR(reducer->Place());
  return reducer;
}

Status GradientReducer::Place() {
  if (host_ops_ != nullptr) {
    to_host_ = std::make_unique<HostGradients>(ops_, *host_ops_, placed_.travelling);
    bytes_ += to_host_->device_bytes();
  }
  if (placed_.local.count > 0) {
    MUSTER_ASSIGN_OR_RETURN(void* const sums, Allocate(placed_.local));
    auto* next = static_cast<char*>(sums);
    for (const FlatUnit& unit : parts_) {
      local_.push_back(next);
      next += unit.flat_count * static_cast<std::int64_t>(ElementSize(gradient_));
    }
  }
  if (placed_.slots > 0) {
    MUSTER_ASSIGN_OR_RETURN(slots_, Allocate(placed_.slot_memory));
  }
  return OkStatus();
}

Result<void*> GradientReducer::Allocate(const FlatBuffer& buffer) {
  bytes_ += buffer.bytes();
  const auto bytes = static_cast<std::size_t>(buffer.bytes());
  if (buffer.memory == MemoryKind::kPerRank) {
    MUSTER_ASSIGN_OR_RETURN(region_, mesh_.shard()->Share(RegionKind::kPerRank, bytes, -1));
    return region_->data();
  }
  memory_.push_back(ops_.Allocate(bytes));
  return memory_.back().data_ptr();
}

GradientReducer::~GradientReducer() {
  NoThrow("a copy of gradients to the host", [this] { StartStep(); });
}

void GradientReducer::StartStep() {
  for (Pending& pending : pending_) (void)pending.work->Wait();
  pending_.clear();
  for (auto& work : replica_works_) (void)work->Wait();
  replica_works_.clear();
  if (to_host_ != nullptr) to_host_->Finish();
  touched_.assign(touched_.size(), false);
}

void* GradientReducer::SlotData(int slot) const {
  return static_cast<char*>(slots_) + slot * (placed_.slot_memory.bytes() / placed_.slots);
}

Result<GradientReducer::Target> GradientReducer::Begin(int unit) {
  if (placed_.slots == 0) {
    void* const sum = sharded_ ? local_[unit] : state_.units()[unit].gradient;
    return Target{.flat = sum, .type = gradient_, .add = touched_[unit]};
  }
  while (std::any_of(pending_.begin(), pending_.end(),
                     [this](const Pending& each) { return each.slot == next_slot_; })) {
    MUSTER_RETURN_IF_ERROR(SettleOldest());
  }
  return Target{.flat = SlotData(next_slot_), .type = compute_, .add = false};
}

Status GradientReducer::Reduce(int unit, bool last) {
  const bool add = touched_[unit];
  touched_[unit] = true;
  Pending reduction{.unit = unit, .last = last, .add = add};
  if (placed_.slots > 0) {
    const int slot = next_slot_;
    next_slot_ = (next_slot_ + 1) % placed_.slots;
    ZeroGaps(unit, SlotData(slot));
    if (sharded_ && every_micro_batch_) {
      reduction.slot = slot;
      return Scatter(std::move(reduction), SlotData(slot), compute_);
    }
    if (!sharded_ && to_host_ != nullptr) reduction.place = to_host_->TakePlace();
    void* sum = sharded_ ? local_[unit] : state_.units()[unit].gradient;
    if (reduction.place != nullptr) sum = reduction.place;
    ops_.Run(op::Convert{SlotData(slot), compute_, sum, gradient_, parts_[unit].flat_count,
                         add && reduction.place == nullptr});
  }
  if (!sharded_) return Reduced(reduction);
  if (!last) return OkStatus();
  reduction.add = false;
  return Scatter(std::move(reduction), local_[unit], gradient_);
}

Status GradientReducer::Scatter(Pending reduction, void* source, ElementType type) {
  const UnitShard& shard = state_.units()[reduction.unit];
  if (to_host_ != nullptr) {
    // A place is free again once its reduction has been settled and sent off.
    while (pending_.size() + 1 >= kTravellingGradients) MUSTER_RETURN_IF_ERROR(SettleOldest());
    reduction.place = to_host_->TakePlace();
  }
  reduction.work =
      SharersOf(reduction.unit)
          .ReduceScatter({.full = source,
                          .shard = reduction.place != nullptr ? reduction.place : shard.gradient,
                          .count = static_cast<std::size_t>(shard.count),
                          .full_type = type,
                          .sum_type = gradient_,
                          .shard_type = gradient_,
                          .accumulate = reduction.add && reduction.place == nullptr});
  pending_.push_back(std::move(reduction));
  return OkStatus();
}

Communicator& GradientReducer::SharersOf(int unit) const {
  return units_[unit].slices > 1 ? *mesh_.expert_shards() : *mesh_.shard();
}

Status GradientReducer::Finish() {
  while (!pending_.empty()) MUSTER_RETURN_IF_ERROR(SettleOldest());
  for (auto& work : replica_works_) MUSTER_RETURN_IF_ERROR(work->Wait());
  replica_works_.clear();
  if (to_host_ != nullptr) to_host_->Finish();
  return OkStatus();
}

// Reductions end in the order they were issued.
Status GradientReducer::SettleOldest() {
  const Pending oldest = std::move(pending_.front());
  pending_.pop_front();
  MUSTER_RETURN_IF_ERROR(oldest.work->Wait());
  return Reduced(oldest);
}

// The shard group has added up a unit's gradient: on to the replicas, and to the host.
Status GradientReducer::Reduced(const Pending& reduction) {
  const UnitShard& shard = state_.units()[reduction.unit];
  if (reduction.place != nullptr) {
    if (mesh_.replicas() != nullptr) {
      MUSTER_RETURN_IF_ERROR(
          mesh_.replicas()
              ->AllReduce(reduction.place, shard.count, gradient_, ReduceOp::kSum)
              ->Wait());
    }
    to_host_->Start(reduction.place, shard.gradient, shard.count, reduction.add);
    return OkStatus();
  }
  if (mesh_.replicas() != nullptr && reduction.last) {
    replica_works_.push_back(
        mesh_.replicas()->AllReduce(shard.gradient, shard.count, gradient_, ReduceOp::kSum));
  }
  return OkStatus();
}

// A slot serves units of different layouts: what lies between the tensors of this one may be
// another unit's gradient.
void GradientReducer::ZeroGaps(int unit, void* flat) const {
  const auto element = static_cast<std::int64_t>(ElementSize(compute_));
  const auto options = at::TensorOptions().dtype(at::kByte).device(ops_.device());
  for (const Interval& gap : gaps_[unit]) {
    at::from_blob(static_cast<char*>(flat) + gap.begin * element, {gap.count() * element}, options)
        .zero_();
  }
}

}  // namespace muster
