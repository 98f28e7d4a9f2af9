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

// Four experts of two matrices each, the first of which is of two tensors.
UnitSpec ExpertUnit() {
  UnitSpec unit{.name = "experts", .blocks = {.count = 1, .part = BlockPart::kExperts}};
  for (int e = 0; e < 4; ++e) {
    for (const char* half : {"gate", "up"}) {
      unit.tensors.push_back(
          {half + std::to_string(e), {3, 5}, unit.tensors.size() > 0, TensorRole::kExpertGateUp});
    }
  }
  for (int e = 0; e < 4; ++e) {
    unit.tensors.push_back({"down" + std::to_string(e), {5, 3}, e > 0, TensorRole::kExpertDown});
  }
  return unit;
}

// Six ranks in groups of two: those at one place hold the same half of the experts.
TEST(FlatLayout, ASliceHasItsExpertsAsAUnitOfTheirOwn) {
  const FlatLayout layout({ExpertUnit()}, 6, 2);
  const FlatUnit& unit = layout.units()[0];
  EXPECT_EQ(unit.slices, 2);
  EXPECT_EQ(unit.ranks_of_slice(), 3);
  std::vector<int> places;
  for (int rank = 0; rank < 6; ++rank) {
    places.push_back(unit.PlaceOf(rank));
    EXPECT_EQ(unit.RankAt(unit.PlaceOf(rank)), rank);
    EXPECT_EQ(Intersect(unit.Slice(rank), unit.Shard(rank)), unit.Shard(rank));
  }
  EXPECT_EQ(places, (std::vector<int>{0, 3, 1, 4, 2, 5}));
  // The layout of a model that has the half alone.
  for (int rank = 0; rank < 2; ++rank) {
    UnitSpec half{.name = "experts", .blocks = {.count = 1, .part = BlockPart::kExperts}};
    for (const UnitTensor& tensor : ExpertUnit().tensors) {
      if ((tensor.name.back() - '0') / 2 != rank) continue;
      half.tensors.push_back(tensor);
      const auto count = half.tensors.size();
      half.tensors.back().joined =
          count > 1 && half.tensors[count - 2].role == half.tensors[count - 1].role;
    }
    const FlatUnit part = SliceOf(unit, rank), want = FlatLayout({half}, 3).units()[0];
    EXPECT_EQ(part.flat_count, want.flat_count);
    ASSERT_EQ(part.tensors.size(), want.tensors.size());
    for (std::size_t t = 0; t < part.tensors.size(); ++t) {
      EXPECT_EQ(part.tensors[t].spec.name, want.tensors[t].spec.name);
      EXPECT_EQ(part.tensors[t].spec.joined, want.tensors[t].spec.joined);
      EXPECT_EQ(part.tensors[t].offset, want.tensors[t].offset);
    }
  }
}

TEST(FlatLayout, ShardsOfSlicesHaveEveryElementOnce) {
  const FlatLayout layout({ExpertUnit()}, 6, 2);
  std::map<std::string, std::int64_t> covered;
  for (int rank = 0; rank < 6; ++rank) {
    std::int64_t end = 0;
    for (const TensorInterval& interval : layout.ShardIntervals(0, rank)) {
      EXPECT_GE(interval.array_offset, end);
      end = interval.array_offset + interval.count;
      covered[interval.tensor] += interval.count;
    }
    EXPECT_LE(end, layout.units()[0].shard_count);
  }
  EXPECT_EQ(covered.size(), 12u);
  for (const auto& [tensor, count] : covered) EXPECT_EQ(count, 15) << tensor;
}

TEST(FlatLayout, FindsTensorsByName) {
  const FlatLayout layout(OddUnits(), 2);
  EXPECT_EQ(layout.Find("k").unit, 1);
  EXPECT_EQ(layout.Find("k").tensor, 2);
  EXPECT_EQ(layout.Find("nothing").unit, -1);
}

}  // namespace
}  // namespace muster
