#include "trainer/sharding/shard_state.h"

#include <cstring>

#include "common/base/check.h"
#include "trainer/kernels/adamw.h"

namespace muster {

HostBuffer::HostBuffer(std::size_t bytes) {
  if (bytes == 0) return;
  constexpr std::size_t kPage = 4096;
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  memory_.reset(std::aligned_alloc(kPage, rounded));
  MUSTER_CHECK(memory_ != nullptr, "out of memory for the shards of this rank");
  std::memset(memory_.get(), 0, rounded);
}

ShardState::ShardState(const FlatLayout& layout, int rank, MixedPrecision precision)
    : layout_(layout),
      rank_(rank),
      compute_type_(precision == MixedPrecision::kBf16 ? ElementType::kBFloat16
                                                       : ElementType::kFloat32) {
  std::int64_t total = 0;
  for (const FlatUnit& unit : layout.units()) total += unit.shard_count;
  floats_ = HostBuffer(4 * total * sizeof(float));
  if (compute_type_ == ElementType::kBFloat16) shadows_ = HostBuffer(total * 2);
  float* next = floats_.floats();
  auto* shadow = static_cast<std::uint16_t*>(shadows_.data());
  for (const FlatUnit& unit : layout.units()) {
    const std::int64_t count = unit.shard_count;
    units_.push_back({.count = count,
                      .master = next,
                      .exp_avg = next + count,
                      .exp_avg_sq = next + 2 * count,
                      .gradient = next + 3 * count,
                      .shadow = shadow});
    next += 4 * count;
    if (shadow != nullptr) shadow += count;
  }
}

ShardArray ShardState::Array(int unit, const char* kind, float* data) const {
  return {.name = layout_.units()[unit].name + "/" + kind,
          .type = ElementType::kFloat32,
          .count = units_[unit].count,
          .data = data,
          .intervals = layout_.ShardIntervals(unit, rank_)};
}

std::vector<ShardArray> ShardState::WeightArrays() const {
  std::vector<ShardArray> arrays;
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    arrays.push_back(Array(u, "weight", units_[u].master));
  }
  return arrays;
}

std::vector<ShardArray> ShardState::CheckpointArrays() const {
  std::vector<ShardArray> arrays;
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    arrays.push_back(Array(u, "weight", units_[u].master));
    arrays.push_back(Array(u, "exp_avg", units_[u].exp_avg));
    arrays.push_back(Array(u, "exp_avg_sq", units_[u].exp_avg_sq));
  }
  return arrays;
}

void ShardState::RefreshShadows() {
  for (const UnitShard& unit : units_) {
    if (unit.shadow != nullptr) RoundToBFloat16(unit.master, unit.shadow, unit.count);
  }
}

}  // namespace muster
