#include "trainer/fsdp/state_plan.h"

#include <xxhash.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "trainer/core/flat_layout.h"
#include "trainer/fsdp/mesh.h"
#include "trainer/state/checkpoint/shard_header.h"

namespace muster {
namespace {

std::uint64_t FingerprintOf(const FlatLayout& layout, const Precision& precision) {
  const std::string text = std::string(StoredTypeName(precision.master)) + " " +
                           std::string(StoredTypeName(precision.moments)) + LayoutText(layout);
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace

FlatLayout LayOutTrained(const SplitUnits& units, int ranks, int expert_ways) {
  return FlatLayout(units.trained, ranks, units.frozen.empty() ? expert_ways : 1);
}

std::string LayoutText(const FlatLayout& layout) {
  std::string text = ' ' + std::to_string(layout.world_size());
  for (const FlatUnit& unit : layout.units()) {
    text += '\n' + unit.name + ' ' + std::to_string(unit.shard_count);
    if (unit.slices > 1) text += " in " + std::to_string(unit.slices) + " slices";
    for (const FlatTensor& tensor : unit.tensors) {
      text += '\n' + tensor.spec.name + ' ' + std::to_string(tensor.offset) + ' ' +
              ShapeText(tensor.spec.shape);
    }
  }
  return text;
}

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

Result<SegmentSpec> PlanSegment(std::string name, const ModelConfig& config,
                                const FsdpOptions& options, const GangPlace& place) {
  MUSTER_ASSIGN_OR_RETURN(
      const MeshShape shape,
      ShapeOf(options.strategy, place.world_size, options.ranks_per_node, options.expert_parallel));
  const FlatLayout layout = LayOutTrained(SplitModel(config, options.blocks_per_unit, options.lora),
                                          shape.shard_size, shape.expert_ways);
  const int shard = place.rank % shape.shard_size;
  return SegmentSpec{.name = std::move(name),
                     .shard_index = shard,
                     .shard_count = shape.shard_size,
                     .layout = FingerprintOf(layout, options.precision),
                     .arrays = StateArrays(layout, shard, options.precision)};
}

}  // namespace muster
