#include "trainer/fsdp/shard_state.h"

#include "common/base/check.h"
#include "trainer/ops/convert.h"

namespace muster {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t Bytes(std::int64_t count, ElementType type) {
  const std::size_t bytes = static_cast<std::size_t>(count) * ElementSize(type);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

constexpr int kArraysPerUnit = 3;

void* Shifted(void* array, std::ptrdiff_t bytes) { return static_cast<std::byte*>(array) + bytes; }

// An array to be placed: where its pointer goes, and how long it is.
struct Request {
  void** pointer = nullptr;
  std::size_t bytes = 0;
};

}  // namespace

std::vector<ShardArray> StateArrays(const FlatLayout& layout, int rank,
                                    const Precision& precision) {
  std::vector<ShardArray> arrays;
  for (int u = 0; u < static_cast<int>(layout.units().size()); ++u) {
    const FlatUnit& unit = layout.units()[u];
    const auto add = [&](const char* kind, ElementType type) {
      arrays.push_back({.name = unit.name + "/" + kind,
                        .type = type,
                        .count = unit.shard_count,
                        .intervals = layout.ShardIntervals(u, rank)});
    };
    add("weight", precision.master);
    add("exp_avg", precision.moments);
    add("exp_avg_sq", precision.moments);
  }
  return arrays;
}

ShardState::ShardState(const FlatLayout& layout, int rank, const Precision& precision,
                       DeviceOps& ops, const std::vector<void*>& own_places, const Memory& memory,
                       Segment* segment)
    : layout_(layout),
      rank_(rank),
      precision_(precision),
      ops_(ops),
      segment_(segment),
      units_(layout.units().size()) {
  const bool has_low_precision = in_segment() || precision.compute != precision.master;
  std::vector<Request> requests;
  std::size_t total = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    UnitShard& unit = units_[u];
    unit.count = layout.units()[u].shard_count;
    const auto ask = [&](void** pointer, ElementType type) {
      requests.push_back({pointer, Bytes(unit.count, type)});
      total += requests.back().bytes;
    };
    void** const source = has_low_precision ? &unit.low_precision : &unit.master;
    *source = own_places[u];
    if (!in_segment()) {
      if (has_low_precision || *source == nullptr) ask(&unit.master, precision.master);
      ask(&unit.exp_avg, precision.moments);
      ask(&unit.exp_avg_sq, precision.moments);
    }
    ask(&unit.gradient, precision.gradient);
    if (has_low_precision && *source == nullptr) ask(&unit.low_precision, precision.compute);
  }
  memory_ = memory(total);
  auto* next = static_cast<char*>(memory_.data_ptr());
  for (const Request& request : requests) {
    *request.pointer = next;
    next += request.bytes;
  }
  if (in_segment()) PlaceInSegment();
}

void ShardState::PlaceInSegment() {
  slot_ = segment_->NewestSlot();
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
  const int next = 1 - slot_;
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
  return {.weight = shard.master,
          .exp_avg = shard.exp_avg,
          .exp_avg_sq = shard.exp_avg_sq,
          .old_weight = Shifted(shard.master, to_old_),
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
