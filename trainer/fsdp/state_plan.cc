#include "trainer/fsdp/state_plan.h"

#include <xxhash.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "trainer/core/flat_layout.h"
#include "trainer/fsdp/mesh.h"
#include "trainer/model/adapters.h"

namespace muster {
namespace {

// The words of a layout, one after the other.
class LayoutHash {
 public:
  void Add(std::int64_t word) { words_.push_back(static_cast<std::uint64_t>(word)); }
  void Add(const std::string& text) { words_.push_back(XXH3_64bits(text.data(), text.size())); }
  std::uint64_t value() const {
    return XXH3_64bits(words_.data(), words_.size() * sizeof(std::uint64_t));
  }

 private:
  std::vector<std::uint64_t> words_;
};

std::uint64_t FingerprintOf(const FlatLayout& layout, const Precision& precision) {
  LayoutHash hash;
  hash.Add(static_cast<std::int64_t>(precision.master));
  hash.Add(static_cast<std::int64_t>(precision.moments));
  hash.Add(layout.world_size());
  for (const FlatUnit& unit : layout.units()) {
    hash.Add(unit.name);
    hash.Add(unit.shard_count);
    for (const FlatTensor& tensor : unit.tensors) {
      hash.Add(tensor.spec.name);
      hash.Add(tensor.offset);
      for (const std::int64_t size : tensor.spec.shape) hash.Add(size);
    }
  }
  return hash.value();
}

}  // namespace

Result<SegmentSpec> PlanSegment(std::string name, const ModelConfig& config,
                                const FsdpOptions& options, const GangPlace& place) {
  MUSTER_ASSIGN_OR_RETURN(const MeshShape shape,
                          ShapeOf(options.strategy, place.world_size, options.ranks_per_node));
  const FlatLayout layout(SplitModel(config, options.blocks_per_unit, options.lora).trained,
                          shape.shard_size);
  const int shard = place.rank % shape.shard_size;
  return SegmentSpec{.name = std::move(name),
                     .shard_index = shard,
                     .shard_count = shape.shard_size,
                     .layout = FingerprintOf(layout, options.precision),
                     .arrays = StateArrays(layout, shard, options.precision)};
}

}  // namespace muster
