#include "trainer/state/checkpoint/init_from.h"
#include "common/base/testing/temp_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/files.h"
#include "trainer/comm/group/testing/in_process_communicator.h"
#include "trainer/state/checkpoint/export_model.h"
#include "trainer/state/checkpoint/file_state.h"
#include "trainer/state/checkpoint/manifest.h"
#include "trainer/state/checkpoint/shard_file.h"
#include "trainer/state/checkpoint/testing/checkpoint_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::ImageOf;
using testing::RankState;

const std::vector<UnitSpec> kUnits = {{"embed", {{"embed", {53, 8}}}},
                                      {"head", {{"norm", {8}}, {"head", {53, 8}}}}};
const TrainCursor kCursor = {.step = 50,
                             .samples = 400,
                             .tokens = 9000,
                             .seed = ~0ull,
                             .sample_chain = 1ull << 63,
                             .optimizer_steps = 48,
                             .loss_scale = 0.5,
                             .loss_scale_steps = 2};

// On a rank alone.
Result<TrainCursor> InitFrom(const std::string& path, const std::vector<ShardArray>& arrays,
                             const InitFromOptions& options) {
  InProcessGroup group(1);
  const auto communicator = group.Join(0);
  MUSTER_RETURN_IF_ERROR(communicator->Form({}, Deadline::After(std::chrono::seconds(5))));
  return muster::InitFrom(*communicator, path, arrays, options);
}

class InitFromTest : public ::testing::Test {
 protected:
  // Two ranks' checkpoint.
  void Save(Step step = 50, ElementType moments = ElementType::kFloat32) {
    const FlatLayout layout(kUnits, 2);
    const std::string name = CheckpointDirectoryName(step, 1);
    CheckpointManifest manifest{
        .step = step, .generation = 1, .job_id = "j", .directory = name, .world_size = 2};
    ASSERT_TRUE(MakeDirectories(root() + "/" + name).ok());
    for (int rank = 0; rank < 2; ++rank) {
      RankState state(layout, rank, moments);
      state.Fill();
      TrainCursor cursor = kCursor;
      cursor.step = step;
      const auto record = WriteShard(root() + "/" + name + "/" + ShardFileName(rank),
                                     ImageOf({.job_id = "j",
                                              .generation = 1,
                                              .rank = rank,
                                              .world_size = 2,
                                              .parameters = layout.parameter_count(),
                                              .cursor = cursor,
                                              .arrays = state.arrays()}));
      ASSERT_TRUE(record.ok()) << record.status().ToString();
      manifest.shards.push_back(*record);
    }
    ASSERT_TRUE(
        WriteFileAtomically(root() + "/" + name + "/" + kManifestFile, ManifestToJson(manifest))
            .ok());
  }
  std::string root() const { return dir_.path() + "/checkpoints"; }
  std::string checkpoint() const { return root() + "/step-00000050-g1"; }
  std::string file() const { return dir_.path() + "/state.safetensors"; }

  void Export() {
    const auto state = OpenState(checkpoint());
    ASSERT_TRUE(state.ok()) << state.status().ToString();
    const Status written = WriteStateFile(**state, file());
    ASSERT_TRUE(written.ok()) << written.ToString();
  }

  const TempDirForTest dir_;
};

TEST_F(InitFromTest, ACheckpointCarriesWeightsAndWhenAskedMoments) {
  Save();
  const RankState all(FlatLayout(kUnits, 1), 0);
  const auto cursor = InitFrom(checkpoint() + "/", all.arrays(), {.optimizer = true});
  ASSERT_TRUE(cursor.ok()) << cursor.status().ToString();
  EXPECT_EQ(*cursor, kCursor);
  EXPECT_TRUE(all.IsFilled());

  const RankState weights(FlatLayout(kUnits, 3), 1);
  ASSERT_TRUE(InitFrom(checkpoint(), weights.arrays(), {}).ok());
  EXPECT_FALSE(weights.IsFilled());
  for (const ShardArray& array : weights.arrays()) {
    const auto* bytes = static_cast<const char*>(array.data);
    const bool zero = std::all_of(bytes, bytes + array.bytes(), [](char c) { return c == 0; });
    EXPECT_EQ(zero, array.kind() != kWeightKind) << array.name;
  }
}

TEST_F(InitFromTest, LoadingShowsThatBytesArriveAlsoWhereTheyAreConverted) {
  Save();
  for (const ElementType moments : {ElementType::kFloat32, ElementType::kBFloat16}) {
    const RankState all(FlatLayout(kUnits, 1), 0, moments);
    int moves = 0;
    ASSERT_TRUE(
        InitFrom(checkpoint(), all.arrays(), {.optimizer = true, .on_read = [&] { ++moves; }})
            .ok());
    EXPECT_EQ(moves, 3 * 3) << "tensors, times weight and moments";
  }
}

TEST_F(InitFromTest, ADirectoryOfCheckpointsMeansItsNewest) {
  Save(40);
  Save(50);
  const RankState state(FlatLayout(kUnits, 1), 0);
  EXPECT_EQ(InitFrom(root(), state.arrays(), {})->step, 50);
}

TEST_F(InitFromTest, ASingleFileHoldsTheSameStateBitForBit) {
  Save(50, ElementType::kBFloat16);
  Export();
  for (const int world_size : {1, 3}) {
    for (int rank = 0; rank < world_size; ++rank) {
      const RankState state(FlatLayout(kUnits, world_size), rank, ElementType::kBFloat16);
      const auto cursor = InitFrom(file(), state.arrays(), {.optimizer = true});
      ASSERT_TRUE(cursor.ok()) << cursor.status().ToString();
      EXPECT_EQ(*cursor, kCursor);
      EXPECT_TRUE(state.IsFilled());
    }
  }
}

TEST_F(InitFromTest, TheFileIsPlainSafetensors) {
  Save(50, ElementType::kBFloat16);
  Export();
  const auto plain = SafetensorsModel::OpenFile(file());
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  EXPECT_EQ(plain->metadata().at("format"), "pt");
  ASSERT_NE(plain->Find("norm"), nullptr);
  EXPECT_EQ(plain->Find("norm")->type, TensorType::kF32);
  EXPECT_EQ(plain->Find("head")->shape, (std::vector<std::int64_t>{53, 8}));
  ASSERT_NE(plain->Find("optimizer.exp_avg_sq.norm"), nullptr);
  EXPECT_EQ(plain->Find("optimizer.exp_avg.norm")->type, TensorType::kBF16);
}

TEST_F(InitFromTest, TypesAreConverted) {
  Save(50, ElementType::kFloat64);
  Export();
  for (const std::string& path : {checkpoint(), file()}) {
    for (const ElementType moments : {ElementType::kFloat32, ElementType::kBFloat16}) {
      const RankState state(FlatLayout(kUnits, 2), 1, moments);
      const auto cursor = InitFrom(path, state.arrays(), {.optimizer = true});
      ASSERT_TRUE(cursor.ok()) << cursor.status().ToString();
      EXPECT_TRUE(state.IsFilled());
    }
  }
}

TEST_F(InitFromTest, AModelFileHasWeightsButNoMoments) {
  auto writer = SafetensorsWriter::Create(file(), {{"embed", TensorType::kBF16, {53, 8}},
                                                   {"norm", TensorType::kF32, {8}},
                                                   {"head", TensorType::kF32, {53, 8}}});
  const std::vector<float> values(2 * 53 * 8 + 8, 0.5F);
  ASSERT_TRUE(writer->AppendFloats(values.data(), static_cast<std::int64_t>(values.size())).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const RankState state(FlatLayout(kUnits, 2), 0);
  const auto cursor = InitFrom(file(), state.arrays(), {});
  ASSERT_TRUE(cursor.ok()) << cursor.status().ToString();
  EXPECT_EQ(cursor->step, 0);
  EXPECT_EQ(*static_cast<const float*>(state.arrays()[0].data), 0.5F);
  const auto refused = InitFrom(file(), state.arrays(), {.optimizer = true});
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("holds no exp_avg of tensor embed: it was saved without optimizer state"));
}

TEST_F(InitFromTest, WhatIsNoStateIsToldApart) {
  const RankState state(FlatLayout(kUnits, 1), 0);
  const auto code = [&](const std::string& path) {
    return InitFrom(path, state.arrays(), {}).status().code();
  };
  EXPECT_EQ(code(dir_.path() + "/none"), StatusCode::kNotFound);
  EXPECT_EQ(code(dir_.path()), StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileAtomically(file(), "not a state").ok());
  EXPECT_THAT(InitFrom(file(), state.arrays(), {}).status().message(), HasSubstr(file()));
  Save();
  ASSERT_TRUE(WriteFileAtomically(checkpoint() + "/" + kManifestFile, "{").ok());
  EXPECT_EQ(code(checkpoint()), StatusCode::kDataLoss);
  EXPECT_EQ(code(root()), StatusCode::kDataLoss);
}

TEST_F(InitFromTest, NoFileIsLeftOfADamagedCheckpoint) {
  Save();
  const std::string shard = checkpoint() + "/" + ShardFileName(1);
  std::string content = *ReadFile(shard);
  content[content.size() - kShardBlock - 1] ^= 1;
  ASSERT_TRUE(WriteFileAtomically(shard, content).ok());
  const auto state = OpenState(checkpoint());
  ASSERT_TRUE(state.ok()) << state.status().ToString();
  const Status written = WriteStateFile(**state, file());
  EXPECT_EQ(written.code(), StatusCode::kDataLoss);
  EXPECT_THAT(written.message(), HasSubstr(shard));
  std::vector<std::string> left;
  for (const auto& each : std::filesystem::directory_iterator(dir_.path())) {
    left.push_back(each.path().filename());
  }
  EXPECT_THAT(left, ::testing::ElementsAre("checkpoints"));
}

TEST_F(InitFromTest, AModelDirectoryComesOutOfACheckpointOfTwoRanks) {
  Save(50, ElementType::kBFloat16);
  ASSERT_TRUE(MakeDirectories(dir_.path() + "/source").ok());
  ASSERT_TRUE(WriteFileAtomically(dir_.path() + "/source/config.json", "{}").ok());
  ModelExport model{
      .tensors = {{"embed", TensorType::kBF16, {53, 8}}, {"norm", TensorType::kF32, {8}}},
      .source_dir = dir_.path() + "/source",
      .target_dir = dir_.path() + "/model"};
  const auto state = OpenState(checkpoint());
  ASSERT_TRUE(state.ok()) << state.status().ToString();
  const Status written = WriteModelDirectory(**state, model);
  ASSERT_TRUE(written.ok()) << written.ToString();
  EXPECT_EQ(*ReadFile(model.target_dir + "/config.json"), "{}");
  const auto read = SafetensorsModel::Open(model.target_dir);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->Find("embed")->type, TensorType::kBF16);
  std::vector<float> norm(8);
  ASSERT_TRUE(read->ReadFloats("norm", 0, 8, norm.data()).ok());
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(norm[i], RankState::ValueOf({.tensor = "norm"}, kWeightKind, i));
  }
  model.tensors[1].shape = {9};
  model.target_dir += "-2";
  const Status refused = WriteModelDirectory(**state, model);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("tensor norm is [8] there, config.json makes it [9]"));
  EXPECT_FALSE(std::filesystem::exists(model.target_dir));
  EXPECT_FALSE(std::filesystem::exists(model.target_dir + ".writing"));
}

}  // namespace
}  // namespace muster
