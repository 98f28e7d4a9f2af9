#include "trainer/fsdp/gradient_reducer.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trainer/ops/convert.h"
#include "trainer/ops/no_throw.h"

namespace muster {

GradientMemory PlanGradientMemory(const FlatLayout& layout, const Precision& precision,
                                  bool sharded, bool every_micro_batch, bool sums_on_host) {
  std::int64_t largest = 0;
  std::int64_t total = 0;
  for (const FlatUnit& unit : layout.units()) {
    largest = std::max(largest, unit.flat_count);
    total += unit.flat_count;
  }
  GradientMemory memory;
  const bool keeps_local = sharded && !every_micro_batch;
  const bool same_type = precision.compute == precision.gradient;
  memory.direct = same_type && (sharded ? keeps_local : !sums_on_host);
  if (keeps_local)
    memory.local_bytes = total * static_cast<std::int64_t>(ElementSize(precision.gradient));
  if (memory.direct) return memory;
  // Shards start aligned, so slots do too.
  memory.slot_bytes = largest * static_cast<std::int64_t>(ElementSize(precision.compute));
  memory.slots = sharded && !keeps_local ? 2 : 1;
  return memory;
}

GradientReducer::GradientReducer(const FlatLayout& layout, const ShardState& state,
                                 const Mesh& mesh, DeviceOps& ops, DeviceOps* host_ops,
                                 bool every_micro_batch)
    : layout_(layout),
      state_(state),
      mesh_(mesh),
      ops_(ops),
      host_ops_(host_ops),
      every_micro_batch_(every_micro_batch),
      compute_(state.precision().compute),
      gradient_(state.precision().gradient),
      sharded_(mesh.shard() != nullptr),
      plan_(PlanGradientMemory(layout, state.precision(), sharded_, every_micro_batch,
                               host_ops != nullptr)),
      touched_(layout.units().size(), false) {
  for (const FlatUnit& unit : layout.units()) {
    std::vector<Gap>& gaps = gaps_.emplace_back();
    std::int64_t end = 0;
    for (const FlatTensor& tensor : unit.tensors) {
      if (tensor.offset > end) gaps.push_back({end, tensor.offset - end});
      end = tensor.offset + tensor.count;
    }
    if (unit.flat_count > end) gaps.push_back({end, unit.flat_count - end});
  }
}

Result<std::unique_ptr<GradientReducer>> GradientReducer::Create(const FlatLayout& layout,
                                                                 const ShardState& state,
                                                                 const Mesh& mesh, DeviceOps& ops,
                                                                 DeviceOps* host_ops,
                                                                 bool every_micro_batch) {
  std::unique_ptr<GradientReducer> reducer(
      new GradientReducer(layout, state, mesh, ops, host_ops, every_micro_batch));
  MUSTER_RETURN_IF_ERROR(reducer->Place());
  return reducer;
}

Status GradientReducer::Place() {
  if (host_ops_ != nullptr) {
    std::int64_t longest = 0;
    for (const UnitShard& unit : state_.units()) longest = std::max(longest, unit.count);
    to_host_ = std::make_unique<HostGradients>(ops_, *host_ops_, gradient_, longest);
    bytes_ += to_host_->device_bytes();
  }
  if (plan_.local_bytes > 0) {
    MUSTER_ASSIGN_OR_RETURN(void* const sums, PlaceScatterSource(plan_.local_bytes));
    auto* next = static_cast<char*>(sums);
    for (const FlatUnit& unit : layout_.units()) {
      local_.push_back(next);
      next += unit.flat_count * static_cast<std::int64_t>(ElementSize(gradient_));
    }
  }
  if (plan_.slots == 2) {
    MUSTER_ASSIGN_OR_RETURN(slots_, PlaceScatterSource(2 * plan_.slot_bytes));
  } else if (plan_.slots == 1) {
    memory_.push_back(ops_.Allocate(plan_.slot_bytes));
    slots_ = memory_.back().data_ptr();
    bytes_ += plan_.slot_bytes;
  }
  return OkStatus();
}

// Where the peers can read it in place, if they share memory.
Result<void*> GradientReducer::PlaceScatterSource(std::size_t bytes) {
  bytes_ += static_cast<std::int64_t>(bytes);
  auto region = mesh_.shard()->Share(RegionKind::kPerRank, bytes, -1);
  if (region.ok()) {
    region_ = *std::move(region);
    return region_->data();
  }
  if (region.status().code() != StatusCode::kUnimplemented) return region.status();
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
  return static_cast<char*>(slots_) + slot * plan_.slot_bytes;
}

Result<GradientReducer::Target> GradientReducer::Begin(int unit) {
  if (plan_.direct) {
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
  if (!plan_.direct) {
    const int slot = next_slot_;
    next_slot_ = (next_slot_ + 1) % plan_.slots;
    ZeroGaps(unit, SlotData(slot));
    if (sharded_ && every_micro_batch_) {
      reduction.slot = slot;
      return Scatter(std::move(reduction), SlotData(slot), compute_);
    }
    if (!sharded_ && to_host_ != nullptr) reduction.place = to_host_->TakePlace();
    void* sum = sharded_ ? local_[unit] : state_.units()[unit].gradient;
    if (reduction.place != nullptr) sum = reduction.place;
    ops_.Run(op::Convert{SlotData(slot), compute_, sum, gradient_, layout_.units()[unit].flat_count,
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
    while (pending_.size() + 1 >= HostGradients::kPlaces) MUSTER_RETURN_IF_ERROR(SettleOldest());
    reduction.place = to_host_->TakePlace();
  }
  reduction.work = mesh_.shard()->ReduceScatter(
      {.full = source,
       .shard = reduction.place != nullptr ? reduction.place : shard.gradient,
       .count = static_cast<std::size_t>(shard.count),
       .full_type = type,
       .sum_type = gradient_,
       .shard_type = gradient_,
       .accumulate = reduction.add && reduction.place == nullptr});
  pending_.push_back(std::move(reduction));
  return OkStatus();
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
  for (const Gap& gap : gaps_[unit]) {
    at::from_blob(static_cast<char*>(flat) + gap.begin * element, {gap.count * element}, options)
        .zero_();
  }
}

}  // namespace muster
