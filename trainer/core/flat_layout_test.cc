#include "trainer/core/flat_layout.h"

#include <gtest/gtest.h>

#include <map>

namespace muster {
namespace {

std::vector<UnitSpec> OddUnits() {
  return {
      {"embed", {{"e", {37, 5}}}},
      {"block.0", {{"n", {5}}, {"q", {7, 5}}, {"k", {3, 5}, true}, {"o", {5, 7}}}},
      {"head", {{"f", {1}}}},
  };
}

class FlatLayoutOverWorlds : public testing::TestWithParam<int> {};

TEST_P(FlatLayoutOverWorlds, ShardsCoverEveryElementExactlyOnce) {
  const FlatLayout layout(OddUnits(), GetParam());
  std::map<std::string, std::vector<int>> seen;
  std::int64_t pieces = 0;
  for (int u = 0; u < 3; ++u) {
    for (int rank = 0; rank < GetParam(); ++rank) {
      std::int64_t filled_to = 0;
      for (const TensorInterval& piece : layout.ShardIntervals(u, rank)) {
        EXPECT_GE(piece.array_offset, filled_to) << "pieces overlap in the shard";
        filled_to = piece.array_offset + piece.count;
        std::vector<int>& hits = seen[piece.tensor];
        hits.resize(ElementCount(piece.shape));
        for (std::int64_t i = 0; i < piece.count; ++i) ++hits.at(piece.begin + i);
        pieces += piece.count;
      }
      EXPECT_LE(filled_to, layout.units()[u].shard_count);
    }
  }
  EXPECT_EQ(seen.size(), 6u);
  EXPECT_EQ(pieces, layout.parameter_count());
  for (const auto& [name, hits] : seen) {
    for (const int count : hits) ASSERT_EQ(count, 1) << name;
  }
}

TEST_P(FlatLayoutOverWorlds, UnitsSplitEvenlyIntoAlignedShards) {
  const FlatLayout layout(OddUnits(), GetParam());
  for (const FlatUnit& unit : layout.units()) {
    EXPECT_EQ(unit.flat_count, unit.shard_count * GetParam());
    EXPECT_EQ(unit.shard_count % kAlignElements, 0);
    EXPECT_GT(unit.shard_count, 0);
    for (const FlatTensor& tensor : unit.tensors) {
      EXPECT_LE(tensor.offset + tensor.count, unit.flat_count);
      if (!tensor.spec.joined) {
        EXPECT_EQ(tensor.offset % kAlignElements, 0);
      }
    }
  }
}

TEST_P(FlatLayoutOverWorlds, FlatOffsetsDoNotDependOnTheWorldSize) {
  const FlatLayout one(OddUnits(), 1);
  const FlatLayout many(OddUnits(), GetParam());
  for (std::size_t u = 0; u < one.units().size(); ++u) {
    for (std::size_t t = 0; t < one.units()[u].tensors.size(); ++t) {
      EXPECT_EQ(one.units()[u].tensors[t].offset, many.units()[u].tensors[t].offset);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, FlatLayoutOverWorlds, testing::Range(1, 9));

TEST(FlatLayout, JoinedTensorsAreContiguous) {
  const FlatLayout layout(OddUnits(), 2);
  const FlatUnit& block = layout.units()[1];
  EXPECT_EQ(block.tensors[2].offset, block.tensors[1].offset + block.tensors[1].count);
  EXPECT_EQ(layout.parameter_count(), 37 * 5 + 5 + 35 + 15 + 35 + 1);
}

TEST(FlatLayout, FindsTensorsByName) {
  const FlatLayout layout(OddUnits(), 2);
  EXPECT_EQ(layout.Find("k").unit, 1);
  EXPECT_EQ(layout.Find("k").tensor, 2);
  EXPECT_EQ(layout.Find("nothing").unit, -1);
}

}  // namespace
}  // namespace muster
