#include "trainer/core/flat_layout.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/round_up.h"

namespace muster {
namespace {

// Tensors that are joined are one matrix, of which each slice has as many.
std::size_t EndOfMatrix(const std::vector<UnitTensor>& tensors, std::size_t begin) {
  std::size_t end = begin + 1;
  while (end < tensors.size() && tensors[end].joined) ++end;
  return end;
}

FlatUnit LayOut(const UnitSpec& spec, int world_size, int slices, std::int64_t alignment) {
  FlatUnit unit{.name = spec.name, .blocks = spec.blocks, .slices = slices};
  std::vector<int> slice_of;
  std::int64_t end = 0;  // of what a slice has so far
  for (std::size_t t = 0; t < spec.tensors.size();) {
    const std::size_t count = EndOfMatrix(spec.tensors, t) - t;
    const auto in_slice = count / static_cast<std::size_t>(slices);
    MUSTER_CHECK(in_slice * static_cast<std::size_t>(slices) == count,
                 "a matrix has a part for each slice");
    const std::int64_t begin = RoundUp(end, alignment);
    for (int slice = 0; slice < slices; ++slice) {
      end = begin;
      for (std::size_t i = 0; i < in_slice; ++i, ++t) {
        const std::int64_t elements = ElementCount(spec.tensors[t].shape);
        unit.tensors.push_back({spec.tensors[t], end, elements});
        slice_of.push_back(slice);
        end += elements;
      }
    }
  }
  // Shards start aligned too; an empty shard would be a special case for every collective.
  const int ranks = world_size / slices;
  unit.shard_count = std::max(alignment, RoundUp((end + ranks - 1) / ranks, alignment));
  unit.flat_count = unit.shard_count * world_size;
  for (std::size_t t = 0; t < unit.tensors.size(); ++t) {
    unit.tensors[t].offset += slice_of[t] * (unit.flat_count / slices);
  }
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

FlatUnit SliceOf(const FlatUnit& unit, int rank) {
  if (unit.slices == 1) return unit;
  const Interval slice = unit.Slice(rank);
  FlatUnit part{.name = unit.name,
                .blocks = unit.blocks,
                .shard_count = unit.shard_count,
                .flat_count = slice.count()};
  for (FlatTensor tensor : unit.tensors) {
    if (Intersect(slice, tensor.elements()).empty()) continue;
    tensor.offset -= slice.begin;
    const bool follows = !part.tensors.empty() && part.tensors.back().spec.role == tensor.spec.role;
    tensor.spec.joined = tensor.spec.joined && follows;
    part.tensors.push_back(std::move(tensor));
  }
  return part;
}

FlatLayout::FlatLayout(const std::vector<UnitSpec>& units, int world_size, int expert_ways,
                       std::int64_t alignment)
    : world_size_(world_size) {
  MUSTER_CHECK(world_size >= 1, "a layout needs at least one rank");
  for (const UnitSpec& spec : units) {
    const bool sliced = spec.blocks.part == BlockPart::kExperts;
    units_.push_back(LayOut(spec, world_size, sliced ? expert_ways : 1, alignment));
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
  // With slices a unit's tensors do not lie in their order.
  std::ranges::sort(intervals, {}, &TensorInterval::array_offset);
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
