#include "trainer/verbs/checkpoint_list.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/base/unique_fd.h"
#include "trainer/state/checkpoint/manifest.h"
#include "trainer/state/checkpoint/shard_file.h"
#include "trainer/state/checkpoint/testing/checkpoint_testing.h"
#include "trainer/verbs/inspection.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using State = ListedCheckpoint::State;

class CheckpointListTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(checkpoints_); }

  // A checkpoint of two ranks; without `commit` no manifest.
  void Write(Step step, Generation generation, bool commit = true,
             std::optional<double> eval_loss = {}) const {
    const std::string name = CheckpointDirectoryName(step, generation);
    fs::create_directories(checkpoints_ + "/" + name);
    CheckpointManifest manifest{.step = step,
                                .generation = generation,
                                .job_id = "job",
                                .directory = name,
                                .world_size = 2,
                                .shards = {},
                                .eval_loss = eval_loss};
    for (int rank = 0; rank < 2; ++rank) {
      const testing::State state(rank, rank);
      ShardHeader header{.job_id = "job", .generation = generation, .rank = rank, .world_size = 2};
      header.cursor.step = step;
      header.arrays = state.arrays();
      header.adapter = adapter_;
      auto record = WriteShard(checkpoints_ + "/" + name + "/" + ShardFileName(rank),
                               testing::ImageOf(std::move(header)));
      ASSERT_TRUE(record.ok()) << record.status().ToString();
      record->rank = rank;
      manifest.shards.push_back(*std::move(record));
    }
    if (!commit) return;
    ASSERT_TRUE(WriteFileAtomically(checkpoints_ + "/" + name + "/" + kManifestFile,
                                    ManifestToJson(manifest))
                    .ok());
  }
  std::vector<ListedCheckpoint> Listed(bool verify = false) const {
    return std::move(ListCheckpoints(dir_.path(), verify).value());
  }
  std::vector<std::string> Left() const {
    std::vector<std::string> names;
    for (const ListedCheckpoint& checkpoint : Listed()) names.push_back(checkpoint.directory);
    return names;
  }
  // Changes a byte in the middle of a shard, and nothing of its size.
  void Damage(const std::string& name) const {
    std::fstream file(checkpoints_ + "/" + name + "/" + ShardFileName(1),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(5000);
    file.put('\x55');
  }

  const TempDirForTest dir_;
  std::optional<AdapterOrigin> adapter_;
  const std::string checkpoints_ = dir_.path() + "/checkpoints";
};

TEST_F(CheckpointListTest, IsInTheOrderInWhichAResumeTries) {
  Write(50, 1);
  Write(100, 1);
  Write(75, 2);
  Write(125, 2, /*commit=*/false);
  const std::vector<ListedCheckpoint> found = Listed();
  ASSERT_EQ(found.size(), 4u);
  EXPECT_THAT(Left(), ElementsAre("step-00000075-g2", "step-00000100-g1", "step-00000050-g1",
                                  "step-00000125-g2"));
  EXPECT_TRUE(found[0].resumes);
  EXPECT_FALSE(found[1].resumes);
  EXPECT_EQ(found[0].ranks, 2);
  EXPECT_GT(found[0].bytes, 8000u);
  EXPECT_EQ(found[3].state, State::kUncommitted);
}

TEST_F(CheckpointListTest, FindsDamage) {
  Write(50, 1);
  Write(100, 1);
  Damage("step-00000100-g1");
  EXPECT_EQ(Listed()[0].state, State::kCommitted) << "sizes alone show nothing";
  const std::vector<ListedCheckpoint> verified = Listed(/*verify=*/true);
  EXPECT_EQ(verified[0].directory, "step-00000050-g1");
  EXPECT_EQ(verified[1].state, State::kDamaged);
  EXPECT_THAT(verified[1].problem, HasSubstr("rank-00001.shard"));
  fs::resize_file(checkpoints_ + "/step-00000050-g1/rank-00000.shard", 100);
  EXPECT_THAT(Listed()[1].problem, HasSubstr("rank-00000.shard has 100 bytes"));
}

TEST_F(CheckpointListTest, PrunesTheOldestThatAreCommitted) {
  for (const Step step : {50, 100, 150, 200}) Write(step, 1);
  Write(20, 1, /*commit=*/false);
  EXPECT_EQ(PruneCheckpoints(dir_.path(), 2)->size(), 2u);
  EXPECT_THAT(Left(), ElementsAre("step-00000200-g1", "step-00000150-g1", "step-00000020-g1"));
  EXPECT_EQ(PruneCheckpoints(checkpoints_, 2)->size(), 0u);
}

TEST_F(CheckpointListTest, ShowsAndKeepsTheBest) {
  for (const auto& [step, loss] : {std::pair{50, 3.0}, {100, 2.0}, {150, 2.5}})
    Write(step, 1, /*commit=*/true, loss);
  Write(200, 1);
  const std::vector<ListedCheckpoint> found = Listed();
  EXPECT_FALSE(found[0].eval_loss.has_value());
  EXPECT_EQ(found[1].eval_loss, 2.5);
  EXPECT_TRUE(found[2].best);
  EXPECT_FALSE(found[1].best || found[3].best);
  EXPECT_EQ(PruneCheckpoints(dir_.path(), 1)->size(), 2u);
  EXPECT_THAT(Left(), ElementsAre("step-00000200-g1", "step-00000100-g1"));
}

TEST_F(CheckpointListTest, ShowsOfWhichModelAnAdapterIs) {
  Write(50, 1);
  adapter_ = AdapterOrigin{.base_model = "org/base", .base_weights = "", .form = "{}"};
  Write(100, 1);
  const std::vector<ListedCheckpoint> found = Listed();
  EXPECT_EQ(found[0].adapter, adapter_);
  EXPECT_EQ(found[1].adapter, std::nullopt);
  const auto json = InspectPath(checkpoints_ + "/step-00000100-g1", {});
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  EXPECT_EQ((*json)["adapter"]["base_model"], "org/base");
  EXPECT_THAT(InspectionText(*json), HasSubstr("base_model org/base"));
  EXPECT_FALSE(InspectPath(checkpoints_ + "/step-00000050-g1", {})->contains("adapter"));
}

TEST_F(CheckpointListTest, PrunesNothingThatIsInUse) {
  Write(50, 1);
  Write(100, 1);
  const UniqueFd log(::open((dir_.path() + "/metrics.jsonl").c_str(), O_RDWR | O_CREAT, 0644));
  ASSERT_EQ(::flock(log.get(), LOCK_EX), 0);
  EXPECT_EQ(PruneCheckpoints(dir_.path(), 1).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Listed().size(), 2u);
}

TEST_F(CheckpointListTest, OfNoDirectoryIsAnError) {
  EXPECT_THAT(ListCheckpoints(dir_.path() + "/nowhere", false).status().message(),
              HasSubstr("there is no such directory"));
}

TEST_F(CheckpointListTest, InspectionShowsOneAndItsDamage) {
  Write(50, 3);
  const std::string path = checkpoints_ + "/step-00000050-g3/";
  const auto json = InspectPath(path, {.verify = true});
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  EXPECT_EQ((*json)["kind"], "checkpoint");
  EXPECT_EQ((*json)["step"], 50);
  EXPECT_EQ((*json)["verified"], true);
  Damage("step-00000050-g3");
  EXPECT_TRUE(InspectPath(path, {}).ok());
  EXPECT_THAT(InspectPath(path, {.verify = true}).status().message(),
              HasSubstr("rank-00001.shard"));
}

TEST(AgeText, HasOneUnit) {
  EXPECT_EQ(AgeText(-5), "0 s");
  EXPECT_EQ(AgeText(119), "119 s");
  EXPECT_EQ(AgeText(600), "10 min");
  EXPECT_EQ(AgeText(3600 * 5), "5 h");
  EXPECT_EQ(AgeText(86400 * 3), "3 d");
}

}  // namespace
}  // namespace muster
