// FlatLayout: where every tensor of the model lies in the flat arrays that are sharded, gathered
// and saved.
//
// A unit is what is gathered at once: the embedding, one transformer block or a half of it, the
// final norm with the head. Its tensors lie one behind the other in one flat array, each padded to
// kAlignElements, and the array is padded so that it splits evenly over the ranks. Rank r's shard
// is the interval [r * shard_count, (r + 1) * shard_count) of the array; tensors are cut wherever
// that falls. Padding belongs to no tensor and stays zero.
//
// With expert parallelism a unit of experts is in slices, one with each part of the experts: rank r
// gathers slice r % slices alone, and the shards of those that gather the same one make it up.
//
// Pure values, no Torch; any thread. The layout is a function of the units, the world size and the
// slices only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/core/interval.h"
#include "trainer/core/shard_array.h"
#include "trainer/core/tensor_role.h"

namespace muster {

// 128 bytes of fp32: a cache line pair, and the start of every tensor is aligned for any kernel.
inline constexpr std::int64_t kAlignElements = 32;

struct UnitTensor {
  std::string name;  // Hugging Face name
  std::vector<std::int64_t> shape;
  // Lies directly behind the previous tensor, without padding, so that both can be read as one
  // matrix (query, key and value; gate and up). They have one role.
  bool joined = false;
  TensorRole role = TensorRole::kEmbedding;
  int block = 0;  // of the unit's blocks, from 0
};

// Which of each block a unit has.
enum class BlockPart {
  kWhole,
  kWithoutExperts,  // all but its experts
  kExperts,         // its experts alone
};

// The blocks of a unit, of all blocks of the model; none: it is the embedding or the head.
struct UnitBlocks {
  int first = 0;
  int count = 0;
  BlockPart part = BlockPart::kWhole;
};

struct UnitSpec {
  std::string name;  // "embed", "block.3", "block.3.experts", "head"
  std::vector<UnitTensor> tensors;
  UnitBlocks blocks = {};
};

struct FlatTensor {
  UnitTensor spec;
  std::int64_t offset = 0;  // first element within the unit's flat array
  std::int64_t count = 0;

  Interval elements() const { return {offset, offset + count}; }
};

struct FlatUnit {
  std::string name;
  UnitBlocks blocks = {};
  std::vector<FlatTensor> tensors;
  int slices = 1;
  std::int64_t shard_count = 0;  // elements of one rank's shard
  std::int64_t flat_count = 0;   // world size times shard_count

  // Which shard of the array, from 0, is that rank's, and whose one is.
  int PlaceOf(int rank) const { return rank % slices * ranks_of_slice() + rank / slices; }
  int RankAt(int place) const {
    return place % ranks_of_slice() * slices + place / ranks_of_slice();
  }
  Interval Shard(int rank) const { return At(PlaceOf(rank)); }
  Interval At(int place) const { return {place * shard_count, (place + 1) * shard_count}; }
  // What that rank gathers.
  Interval Slice(int rank) const {
    const std::int64_t count = flat_count / slices;
    return {rank % slices * count, (rank % slices + 1) * count};
  }
  int ranks_of_slice() const { return static_cast<int>(flat_count / shard_count) / slices; }
};

// The slice that a rank gathers as a unit of its own: offsets count from its start.
FlatUnit SliceOf(const FlatUnit& unit, int rank);

std::int64_t ElementCount(const std::vector<std::int64_t>& shape);
// "[512, 64]", for messages.
std::string ShapeText(const std::vector<std::int64_t>& shape);

class FlatLayout {
 public:
  // `expert_ways`: slices of the units that have experts alone; divides the world size, and the
  // number of experts. `alignment`: elements that matrices and shards begin at multiples of.
  FlatLayout(const std::vector<UnitSpec>& units, int world_size, int expert_ways = 1,
             std::int64_t alignment = kAlignElements);

  int world_size() const { return world_size_; }
  const std::vector<FlatUnit>& units() const { return units_; }
  // Elements of the model, padding not counted.
  std::int64_t parameter_count() const { return parameter_count_; }

  // The pieces of tensors in rank's shard of `unit`; array_offset counts from the shard's start.
  std::vector<TensorInterval> ShardIntervals(int unit, int rank) const;

  // Where a tensor lies; unit is -1 when the model has no such tensor.
  struct Place {
    int unit = -1;
    int tensor = 0;
  };
  Place Find(const std::string& tensor) const;

 private:
  int world_size_;
  std::int64_t parameter_count_ = 0;
  std::vector<FlatUnit> units_;
};

}  // namespace muster
