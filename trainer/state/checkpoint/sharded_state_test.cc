#include "trainer/state/checkpoint/sharded_state.h"
#include "common/base/testing/temp_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/files.h"
#include "trainer/state/checkpoint/manifest.h"
#include "trainer/state/checkpoint/testing/checkpoint_testing.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ImageOf;
using testing::RankState;

// Uneven sizes, tensors smaller than a shard and larger than several.
const std::vector<UnitTensor> kTensors = {{"embed", {53, 8}}, {"a.norm", {8}},  {"a.q", {40, 9}},
                                          {"b.norm", {8}},    {"b.q", {40, 9}}, {"head", {53, 8}},
                                          {"head.norm", {8}}};

// Units of `size` tensors each, named unlike those of another size.
std::vector<UnitSpec> UnitsOf(std::size_t size) {
  std::vector<UnitSpec> units;
  for (std::size_t at = 0; at < kTensors.size(); at += size) {
    const std::size_t end = std::min(at + size, kTensors.size());
    units.push_back({"unit-" + std::to_string(size) + "." + std::to_string(units.size()),
                     {kTensors.begin() + at, kTensors.begin() + end}});
  }
  return units;
}

class ShardedStateTest : public ::testing::Test {
 protected:
  // Every rank writes; `replicas` copies of a gang of `shard_size`, of which the first `writing`
  // copies hold arrays.
  CheckpointManifest Save(std::size_t unit_size, int shard_size, int replicas = 1,
                          int writing = 1) {
    const FlatLayout layout(UnitsOf(unit_size), shard_size);
    CheckpointManifest manifest{.step = 50,
                                .generation = 1,
                                .job_id = "j",
                                .directory = "step-00000050-g1",
                                .world_size = shard_size * replicas};
    EXPECT_TRUE(MakeDirectories(directory()).ok());
    for (int rank = 0; rank < manifest.world_size; ++rank) {
      RankState state(layout, rank % shard_size);
      state.Fill();
      ShardHeader header{.job_id = "j",
                         .generation = 1,
                         .rank = rank,
                         .world_size = manifest.world_size,
                         .parameters = layout.parameter_count(),
                         .cursor = {.step = 50, .samples = 400}};
      if (rank / shard_size < writing) header.arrays = state.arrays();
      const auto record = WriteShard(directory() + "/" + ShardFileName(rank), ImageOf(header));
      EXPECT_TRUE(record.ok()) << record.status().ToString();
      manifest.shards.push_back(*record);
    }
    return manifest;
  }
  std::string directory() const { return dir_.path() + "/step-00000050-g1"; }
  std::string Shard(int rank) const { return directory() + "/" + ShardFileName(rank); }

  Status Load(const CheckpointManifest& manifest, const std::vector<ShardArray>& arrays,
              int likely = -1) const {
    ShardedState state(dir_.path(), manifest);
    MUSTER_RETURN_IF_ERROR(state.OpenFor(arrays, likely));
    return FillArrays(state, arrays, {});
  }

  // Loads all ranks of another gang and compares every bit.
  void ExpectLoads(const CheckpointManifest& manifest, std::size_t unit_size, int world_size,
                   bool same = false) const {
    const FlatLayout layout(UnitsOf(unit_size), world_size);
    for (int rank = 0; rank < world_size; ++rank) {
      const RankState state(layout, rank);
      const Status loaded = Load(manifest, state.arrays(), same ? rank : -1);
      ASSERT_TRUE(loaded.ok()) << loaded.ToString();
      EXPECT_TRUE(state.IsFilled()) << "rank " << rank << " of " << world_size;
    }
  }

  // The last byte of the data.
  void Damage(int rank) const {
    std::string content = *ReadFile(Shard(rank));
    content[content.size() - kShardBlock - 1] ^= 1;
    ASSERT_TRUE(WriteFileAtomically(Shard(rank), content).ok());
  }

  const TempDirForTest dir_;
};

TEST_F(ShardedStateTest, AnyWorldSizeAndUnitSizeLoadsIntoAnyOther) {
  for (const int from : {1, 2, 3, 4}) {
    for (const std::size_t units : {1, 3, 7}) {
      const CheckpointManifest manifest = Save(units, from);
      for (const int to : {1, 2, 3, 5}) ExpectLoads(manifest, 2, to);
      ExpectLoads(manifest, units, from, /*same=*/true);
    }
  }
}

TEST_F(ShardedStateTest, SameLayoutTouchesNoOtherShard) {
  const CheckpointManifest manifest = Save(2, 3);
  for (const int other : {0, 2}) std::filesystem::remove(Shard(other));
  const FlatLayout layout(UnitsOf(2), 3);
  const RankState state(layout, 1);
  const Status loaded = Load(manifest, state.arrays(), 1);
  ASSERT_TRUE(loaded.ok()) << loaded.ToString();
  EXPECT_TRUE(state.IsFilled());
}

TEST_F(ShardedStateTest, ReplicasThatWroteNothingAreNoHindrance) {
  ExpectLoads(Save(2, 2, /*replicas=*/3, /*writing=*/1), 1, 3);
}

TEST_F(ShardedStateTest, DamagedReplicaFallsBackToAnother) {
  const CheckpointManifest manifest = Save(2, 2, /*replicas=*/2, /*writing=*/2);
  Damage(0);
  std::filesystem::remove(Shard(3));
  ExpectLoads(manifest, 3, 3);
  ExpectLoads(manifest, 2, 2, /*same=*/true);
}

TEST_F(ShardedStateTest, WithoutAnotherReplicaDamageIsNamed) {
  const CheckpointManifest manifest = Save(2, 2, /*replicas=*/2, /*writing=*/2);
  Damage(0);
  Damage(2);
  const RankState state(FlatLayout(UnitsOf(2), 1), 0);
  const Status damaged = Load(manifest, state.arrays());
  EXPECT_EQ(damaged.code(), StatusCode::kDataLoss);
  EXPECT_THAT(damaged.message(), HasSubstr(Shard(0) + " is damaged in bytes"));
  std::filesystem::remove(Shard(0));
  std::filesystem::remove(Shard(2));
  const Status missing = Load(manifest, state.arrays());
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("open " + Shard(0)));
}

TEST_F(ShardedStateTest, AnotherModelIsToldByTensorAndFile) {
  const CheckpointManifest manifest = Save(2, 2);
  const FlatLayout layout({{"u", {{"embed", {8, 53}}}}}, 1);
  const Status reshaped = Load(manifest, RankState(layout, 0).arrays());
  EXPECT_EQ(reshaped.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(reshaped.message(), HasSubstr("tensor embed is [53, 8] there and [8, 53] here"));
  EXPECT_THAT(reshaped.message(), HasSubstr(Shard(0)));
  const FlatLayout other({{"u", {{"c.q", {40, 9}}}}}, 1);
  const Status missing = Load(manifest, RankState(other, 0).arrays());
  EXPECT_EQ(missing.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(missing.message(), HasSubstr("holds no tensor c.q"));
}

TEST_F(ShardedStateTest, AResumeConvertsNothingAndSaysWhatToDo) {
  const CheckpointManifest manifest = Save(2, 2);
  const FlatLayout layout(UnitsOf(2), 2);
  const RankState state(layout, 0, ElementType::kBFloat16);
  const Status refused = Load(manifest, state.arrays());
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("exp_avg of tensor embed as float32"));
  EXPECT_THAT(refused.message(), HasSubstr("train.optimizer.moments"));
}

TEST_F(ShardedStateTest, HolesAndOverlapsAreNamed) {
  CheckpointManifest manifest = Save(7, 2);
  const FlatLayout layout(UnitsOf(7), 2);
  const auto rewrite = [&](auto change) {
    RankState state(layout, 1);
    state.Fill();
    ShardHeader header = *ReadShardHeader(Shard(1));
    header.arrays = state.arrays();
    change(header.arrays[0].intervals);
    manifest.shards[1] = *WriteShard(Shard(1), ImageOf(header));
    return Load(manifest, RankState(FlatLayout(UnitsOf(7), 1), 0).arrays());
  };
  const Status hole = rewrite([](auto& intervals) { intervals.pop_back(); });
  EXPECT_EQ(hole.code(), StatusCode::kFailedPrecondition) << hole.ToString();
  EXPECT_THAT(hole.message(), HasSubstr("tensor head.norm"));
  const Status partial = rewrite([](auto& intervals) { --intervals.back().count; });
  EXPECT_EQ(partial.code(), StatusCode::kDataLoss) << partial.ToString();
  EXPECT_THAT(partial.message(), HasSubstr("element 7 of weight of tensor head.norm"));
  // A part of what rank 0 holds as a whole.
  const Status overlap = rewrite([](auto& intervals) {
    intervals.push_back({"a.q", {40, 9}, 3, 5, 0});
  });
  EXPECT_EQ(overlap.code(), StatusCode::kDataLoss) << overlap.ToString();
  EXPECT_THAT(overlap.message(), HasSubstr("which overlap with elements"));
  EXPECT_THAT(overlap.message(), HasSubstr(Shard(1)));
}

TEST_F(ShardedStateTest, ForeignShardInTheSetIsRefused) {
  CheckpointManifest manifest = Save(2, 2);
  manifest.job_id = "another";
  const RankState state(FlatLayout(UnitsOf(2), 1), 0);
  const Status refused = Load(manifest, state.arrays());
  EXPECT_EQ(refused.code(), StatusCode::kDataLoss);
  EXPECT_THAT(refused.message(), HasSubstr("its manifest disagrees"));
}

TEST_F(ShardedStateTest, ListsWhatItHolds) {
  ShardedState state(dir_.path(), Save(3, 2));
  ASSERT_TRUE(state.OpenAll().ok());
  EXPECT_THAT(state.kinds(), ElementsAre("exp_avg", "exp_avg_sq", "weight"));
  EXPECT_THAT(state.tensors("weight"),
              ElementsAre("a.norm", "a.q", "b.norm", "b.q", "embed", "head", "head.norm"));
  EXPECT_EQ(state.cursor().samples, 400);
  EXPECT_EQ(state.Find("weight", "none"), nullptr);
}

}  // namespace
}  // namespace muster
