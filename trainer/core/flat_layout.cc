#include "trainer/core/flat_layout.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/round_up.h"

namespace muster {
namespace {

FlatUnit LayOut(const UnitSpec& spec, int world_size) {
  FlatUnit unit{.name = spec.name, .blocks = spec.blocks};
  std::int64_t end = 0;
  for (const UnitTensor& tensor : spec.tensors) {
    const std::int64_t offset = tensor.joined ? end : RoundUp(end, kAlignElements);
    const std::int64_t count = ElementCount(tensor.shape);
    unit.tensors.push_back({tensor, offset, count});
    end = offset + count;
  }
  // Shards start aligned too; an empty shard would be a special case for every collective.
  unit.shard_count =
      std::max(kAlignElements, RoundUp((end + world_size - 1) / world_size, kAlignElements));
  unit.flat_count = unit.shard_count * world_size;
  return unit;
}

}  // namespace

std::int64_t ElementCount(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

FlatLayout::FlatLayout(const std::vector<UnitSpec>& units, int world_size)
    : world_size_(world_size) {
  MUSTER_CHECK(world_size >= 1, "a layout needs at least one rank");
  for (const UnitSpec& spec : units) {
    units_.push_back(LayOut(spec, world_size));
    for (const FlatTensor& tensor : units_.back().tensors) parameter_count_ += tensor.count;
  }
}

std::vector<TensorInterval> FlatLayout::ShardIntervals(int unit, int rank) const {
  const FlatUnit& flat = units_.at(unit);
  const Interval shard = flat.Shard(rank);
  std::vector<TensorInterval> intervals;
  for (const FlatTensor& tensor : flat.tensors) {
    const Interval part = Intersect(shard, tensor.elements());
    if (part.empty()) continue;
    intervals.push_back({.tensor = tensor.spec.name,
                         .shape = tensor.spec.shape,
                         .begin = part.begin - tensor.offset,
                         .count = part.count(),
                         .array_offset = part.begin - shard.begin});
  }
  return intervals;
}

FlatLayout::Place FlatLayout::Find(const std::string& tensor) const {
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    for (int t = 0; t < static_cast<int>(units_[u].tensors.size()); ++t) {
      if (units_[u].tensors[t].spec.name == tensor) return {u, t};
    }
  }
  return {};
}

}  // namespace muster
