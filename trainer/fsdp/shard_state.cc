#include "trainer/fsdp/shard_state.h"

#include <utility>

#include "common/base/check.h"
#include "trainer/fsdp/state_plan.h"
#include "trainer/ops/convert.h"

namespace muster {
namespace {

constexpr int kArraysPerUnit = 3;

void* Shifted(void* array, std::ptrdiff_t bytes) { return static_cast<std::byte*>(array) + bytes; }

}  // namespace

ShardState::ShardState(const Placement& placement, int rank, const Precision& precision,
                       DeviceOps& ops, const std::vector<void*>& own_places, const Memory& memory,
                       Segment* segment)
    : layout_(placement.trained),
      rank_(rank),
      precision_(precision),
      ops_(ops),
      segment_(placement.state.in_segment ? segment : nullptr),
      units_(layout_.units().size()) {
  const StateBuffers& state = placement.state;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    units_[u].count = layout_.units()[u].shard_count;
    (state.has_low_precision ? units_[u].low_precision : units_[u].master) = own_places[u];
  }
  const std::pair<const FlatBuffer&, void * UnitShard::*> arrays[] = {
      {state.master, &UnitShard::master},
      {state.exp_avg, &UnitShard::exp_avg},
      {state.exp_avg_sq, &UnitShard::exp_avg_sq},
      {state.gradient, &UnitShard::gradient},
      {state.low_precision, &UnitShard::low_precision}};
  std::int64_t total = 0;
  for (const auto& [buffer, pointer] : arrays) total += buffer.bytes();
  memory_ = memory(static_cast<std::size_t>(total));
  void* next = memory_.data_ptr();
  for (const auto& [buffer, pointer] : arrays) {
    if (buffer.count == 0) continue;
    for (UnitShard& unit : units_) {
      unit.*pointer = next;
      next = Shifted(next, unit.count * static_cast<std::ptrdiff_t>(ElementSize(buffer.type)));
    }
  }
  if (in_segment()) PlaceInSegment();
}

void ShardState::PlaceInSegment() {
  slot_ = segment_->NewestStep() >= 0 ? segment_->NewestSlot() : segment_->FreeSlot();
  const std::vector<ShardArray> arrays = segment_->Arrays(slot_);
  MUSTER_CHECK(arrays.size() == kArraysPerUnit * units_.size(), "a segment of another layout");
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const ShardArray* of_unit = &arrays[kArraysPerUnit * u];
    MUSTER_CHECK(of_unit->count == units_[u].count && of_unit->type == precision_.master,
                 "a segment of another layout");
    units_[u].master = of_unit[0].data;
    units_[u].exp_avg = of_unit[1].data;
    units_[u].exp_avg_sq = of_unit[2].data;
  }
}

std::vector<ShardArray> ShardState::WeightArrays() const {
  std::vector<ShardArray> weights;
  for (ShardArray& array : CheckpointArrays()) {
    if (array.kind() == kWeightKind) weights.push_back(std::move(array));
  }
  return weights;
}

std::vector<ShardArray> ShardState::CheckpointArrays() const {
  std::vector<ShardArray> arrays = StateArrays(layout_, rank_, precision_);
  for (std::size_t u = 0; u < units_.size(); ++u) {
    ShardArray* of_unit = &arrays[kArraysPerUnit * u];
    of_unit[0].data = units_[u].master;
    of_unit[1].data = units_[u].exp_avg;
    of_unit[2].data = units_[u].exp_avg_sq;
  }
  return arrays;
}

ArrayMemory ShardState::array_memory() const {
  if (ops_.is_host()) return {};
  const auto copy = [&ops = ops_](void* to, const void* from, std::size_t bytes) {
    ops.Copy(to, from, bytes)->WaitOnHost();
  };
  return {.read = copy, .write = copy};
}

void ShardState::RefreshLowPrecision() {
  for (const UnitShard& unit : units_) {
    if (unit.low_precision == nullptr) continue;
    ops_.Run(op::Convert{unit.master, precision_.master, unit.low_precision, precision_.compute,
                         unit.count, false});
  }
}

void ShardState::BeginUpdate() {
  if (!in_segment()) return;
  const int next = segment_->FreeSlot(slot_);
  segment_->Unseal(next);
  to_old_ = segment_->slot(slot_) - segment_->slot(next);
  slot_ = next;
  for (UnitShard& unit : units_) {
    unit.master = Shifted(unit.master, -to_old_);
    unit.exp_avg = Shifted(unit.exp_avg, -to_old_);
    unit.exp_avg_sq = Shifted(unit.exp_avg_sq, -to_old_);
  }
}

OptimizerArrays ShardState::ForOptimizer(int unit) const {
  const UnitShard& shard = units_[unit];
  // A copy of the same type is the weights before the update, and the last gather has read it.
  const void* old_weight = in_segment() && precision_.compute == precision_.master
                               ? shard.low_precision
                               : Shifted(shard.master, to_old_);
  return {.weight = shard.master,
          .exp_avg = shard.exp_avg,
          .exp_avg_sq = shard.exp_avg_sq,
          .old_weight = old_weight,
          .old_exp_avg = Shifted(shard.exp_avg, to_old_),
          .old_exp_avg_sq = Shifted(shard.exp_avg_sq, to_old_),
          .gradient = shard.gradient,
          .low_precision = shard.low_precision,
          .weight_type = precision_.master,
          .moment_type = precision_.moments,
          .gradient_type = precision_.gradient,
          .low_precision_type = precision_.compute,
          .count = shard.count};
}

}  // namespace muster
