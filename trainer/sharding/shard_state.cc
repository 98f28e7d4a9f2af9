#include "trainer/sharding/shard_state.h"

namespace muster {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t Bytes(std::int64_t count, ElementType type) {
  const std::size_t bytes = static_cast<std::size_t>(count) * ElementSize(type);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// An array to be placed: where its pointer goes, and how long it is.
struct Request {
  void** pointer = nullptr;
  std::size_t bytes = 0;
};

}  // namespace

ShardState::ShardState(const FlatLayout& layout, int rank, const Precision& precision,
                       DeviceOps& ops, const std::vector<void*>& own_places, const Memory& memory)
    : layout_(layout),
      rank_(rank),
      precision_(precision),
      ops_(ops),
      units_(layout.units().size()) {
  const bool has_shadow = precision.compute != precision.master;
  std::vector<Request> requests;
  std::size_t total = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    UnitShard& unit = units_[u];
    unit.count = layout.units()[u].shard_count;
    const auto ask = [&](void** pointer, ElementType type) {
      requests.push_back({pointer, Bytes(unit.count, type)});
      total += requests.back().bytes;
    };
    void** const source = has_shadow ? &unit.shadow : &unit.master;
    *source = own_places[u];
    if (has_shadow || *source == nullptr) ask(&unit.master, precision.master);
    ask(&unit.exp_avg, precision.moments);
    ask(&unit.exp_avg_sq, precision.moments);
    ask(&unit.gradient, precision.gradient);
    if (has_shadow && *source == nullptr) ask(&unit.shadow, precision.compute);
  }
  memory_ = memory(total);
  auto* next = static_cast<char*>(memory_.data_ptr());
  for (const Request& request : requests) {
    *request.pointer = next;
    next += request.bytes;
  }
}

ShardArray ShardState::Array(int unit, const char* kind, void* data, ElementType type) const {
  return {.name = layout_.units()[unit].name + "/" + kind,
          .type = type,
          .count = units_[unit].count,
          .data = data,
          .intervals = layout_.ShardIntervals(unit, rank_)};
}

std::vector<ShardArray> ShardState::WeightArrays() const {
  std::vector<ShardArray> arrays;
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    arrays.push_back(Array(u, "weight", units_[u].master, precision_.master));
  }
  return arrays;
}

std::vector<ShardArray> ShardState::CheckpointArrays() const {
  std::vector<ShardArray> arrays;
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    arrays.push_back(Array(u, "weight", units_[u].master, precision_.master));
    arrays.push_back(Array(u, "exp_avg", units_[u].exp_avg, precision_.moments));
    arrays.push_back(Array(u, "exp_avg_sq", units_[u].exp_avg_sq, precision_.moments));
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

void ShardState::RefreshShadows() {
  for (const UnitShard& unit : units_) {
    if (unit.shadow == nullptr) continue;
    ops_.Convert(unit.master, precision_.master, unit.shadow, precision_.compute, unit.count,
                 false);
  }
}

OptimizerArrays ShardState::ForOptimizer(int unit) const {
  const UnitShard& shard = units_[unit];
  return {.weight = shard.master,
          .exp_avg = shard.exp_avg,
          .exp_avg_sq = shard.exp_avg_sq,
          .gradient = shard.gradient,
          .shadow = shard.shadow,
          .weight_type = precision_.master,
          .moment_type = precision_.moments,
          .gradient_type = precision_.gradient,
          .shadow_type = precision_.compute,
          .count = shard.count};
}

}  // namespace muster
