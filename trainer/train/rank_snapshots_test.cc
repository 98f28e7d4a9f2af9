// Rank processes that resume from snapshots, over generations of other ranks and processes.
#include "trainer/train/rank_snapshots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "tests/support/eventually.h"
#include "trainer/train/testing/rank_process_testing.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class RankSnapshotsTest : public RankProcessTest {
 protected:
  int steps_ = 80;  // enough to be interrupted

  JobSpec Job(const std::string& output) const {
    JobSpec spec = Endless(output, 2);
    spec.train->schedule.max_steps = steps_;
    spec.train->logging_every = steps_;
    return spec;
  }

  // The line of each step; one that was done again has to be the same again.
  std::map<Step, Json> LossHistory(const std::string& output) const {
    std::map<Step, Json> history;
    for (const Json& line : Metrics(output)) {
      const Json numbers = {line["loss"],   line["grad_norm"], line["lr"],
                            line["tokens"], line["samples"],   line["sample_chain"]};
      const auto [at, fresh] = history.emplace(line["step"].get<Step>(), numbers);
      EXPECT_TRUE(fresh || at->second == numbers) << "step " << at->first;
    }
    return history;
  }

  void Undisturbed(const std::string& output) {
    TestNode node;
    Gang gang;
    for (int i = 0; i < 2; ++i) gang.push_back(std::make_unique<TestProcess>(Job(output), node));
    Assign(1, {gang[0].get(), gang[1].get()});
    ExpectDone(gang);
  }

  void ExpectTheBitsOf(const std::string& one, const std::string& other) const {
    EXPECT_EQ(LossHistory(one), LossHistory(other));
    EXPECT_EQ(LossHistory(one).size(), static_cast<std::size_t>(steps_));
    EXPECT_EQ(*ReadFile(dir_ + "/" + one + "/model/model.safetensors"),
              *ReadFile(dir_ + "/" + other + "/model/model.safetensors"));
  }

  // Every rank has resumed from the same snapshot; its step.
  static Step ExpectSnapshot(const std::vector<TestProcess*>& processes, Generation generation) {
    std::vector<Step> steps;
    for (TestProcess* each : processes) {
      const Json resumed = each->Await("resumed", generation);
      EXPECT_EQ(resumed["from"], "snapshot");
      steps.push_back(resumed["step"]);
      EXPECT_EQ(steps.back(), steps.front());
    }
    EXPECT_GE(steps.front(), 1);
    return steps.front();
  }
};

TEST_F(RankSnapshotsTest, SurvivorsGoOnInTheirSegmentsAndEndInTheSameBits) {
  Undisturbed("whole");
  Gang gang = Start(Job("out"), 2);
  Assign(1, {gang[0].get(), gang[1].get()});
  ExpectFirstStep(gang, 1);
  ParkAll(gang, 1);
  const Step parked = gang[0]->Await("parked", 1)["step"];
  Assign(2, {gang[0].get(), gang[1].get()});
  const Step resumed = ExpectSnapshot({gang[0].get(), gang[1].get()}, 2);
  EXPECT_GE(resumed, parked - 1);
  EXPECT_LE(resumed, parked + 1);
  ExpectDone(gang);
  EXPECT_THAT(node_.names(), UnorderedElementsAre("g1-rank0", "g1-rank1"));
  ExpectTheBitsOf("out", "whole");
}

TEST_F(RankSnapshotsTest, AStandbyTakesTheLostRanksPlaceInItsSegment) {
  Undisturbed("whole");
  Gang gang = Start(Job("out"), 3);
  gang[2]->Await("standby_ready", 0);
  Assign(1, {gang[0].get(), gang[1].get()});
  gang[1]->Await("first_step", 1);
  gang[1]->Park(1);
  gang[0]->Await("parked", 1);
  gang[1]->Await("parked", 1);  // and is not asked for again
  Assign(2, {gang[0].get(), gang[2].get()});
  ExpectSnapshot({gang[0].get(), gang[2].get()}, 2);
  EXPECT_TRUE(gang[0]->AwaitEnd().ok());
  EXPECT_TRUE(gang[2]->AwaitEnd().ok());
  EXPECT_THAT(node_.names(), UnorderedElementsAre("g1-rank0", "g1-rank1"));
  ExpectTheBitsOf("out", "whole");
}

// A new process everywhere: nothing but what the guardian holds is left of the first generation.
TEST_F(RankSnapshotsTest, TheGuardiansDescriptorsAreAllThatIsNeeded) {
  Undisturbed("whole");
  {
    const Gang gang = Start(Job("out"), 2);
    Assign(1, {gang[0].get(), gang[1].get()});
    ExpectFirstStep(gang, 1);
    ParkAll(gang, 1);
  }
  const Gang gang = Start(Job("out"), 2);
  Assign(2, {gang[1].get(), gang[0].get()});
  ExpectSnapshot({gang[0].get(), gang[1].get()}, 2);
  ExpectDone(gang);
  ExpectTheBitsOf("out", "whole");
}

// Nothing in the adapter's own tensors would show it.
TEST_F(RankSnapshotsTest, AnAdaptersSnapshotIsNotGoneOnFromOverOtherWeights) {
  JobSpec job = Job("out");
  job.train->lora = LoraSpec{.r = 2, .alpha = 4};
  {
    const Gang gang = Start(job, 2);
    Assign(1, {gang[0].get(), gang[1].get()});
    ExpectFirstStep(gang, 1);
    ParkAll(gang, 1);
  }
  EditWeights("model.norm.weight", [](std::vector<float>& values) { values[0] += 1; });
  const Gang gang = Start(job, 2);
  Assign(2, {gang[0].get(), gang[1].get()});
  for (const auto& each : gang) {
    const TrainStatus failure = each->AwaitEnd();
    ASSERT_FALSE(failure.ok());
    EXPECT_EQ(failure.exit_code(), kExitBadInput);
    EXPECT_THAT(failure.message(),
                AllOf(HasSubstr("the snapshot g1-rank"), HasSubstr("over the weights of")));
  }
}

TEST_F(RankSnapshotsTest, AShrunkAndAGrownGangTrainOnTheSameSamplesOnceEach) {
  Undisturbed("whole");
  Gang gang = Start(Job("out"), 3);
  Assign(1, {gang[0].get(), gang[1].get()});
  gang[0]->Await("first_step", 1);
  gang[0]->Park(1);
  gang[0]->Await("parked", 1);
  gang[1]->Await("parked", 1);
  Assign(2, {gang[1].get()});
  ExpectSnapshot({gang[1].get()}, 2);
  gang[1]->Await("first_step", 2);
  gang[1]->Park(2);
  gang[1]->Await("parked", 2);
  EXPECT_THAT(node_.names(), ElementsAre("g2-rank0")) << "the old shards were let go";
  EXPECT_EQ(gang[0]->Await("cut", 1)["segments"], Json::array());
  EXPECT_THAT(gang[1]->Await("cut", 2)["segments"].get<std::vector<std::string>>(),
              UnorderedElementsAre("g1-rank0", "g1-rank1"));
  Assign(3, {gang[0].get(), gang[1].get(), gang[2].get()});
  ExpectSnapshot({gang[0].get(), gang[1].get(), gang[2].get()}, 3);
  ExpectDone(gang);
  EXPECT_THAT(node_.names(), UnorderedElementsAre("g3-rank0", "g3-rank1", "g3-rank2"));
  const std::map<Step, Json> whole = LossHistory("whole"), history = LossHistory("out");
  ASSERT_EQ(history.size(), whole.size());
  for (const auto& [step, numbers] : history) {
    for (const std::size_t exact : {2, 3, 4, 5}) EXPECT_EQ(numbers[exact], whole.at(step)[exact]);
    const double loss = whole.at(step)[0];
    EXPECT_NEAR(numbers[0].get<double>(), loss, 0.02 * loss) << "step " << step;
  }
}

TEST_F(RankSnapshotsTest, ACommittedCheckpointOfAHigherStepIsPreferred) {
  Gang whole = Start(Job("whole"), 2);
  Assign(1, {whole[0].get(), whole[1].get()});
  ExpectDone(whole);
  node_.DropAll();
  const Gang gang = Start(Job("out"), 2);
  Assign(1, {gang[0].get(), gang[1].get()});
  ExpectFirstStep(gang, 1);
  ParkAll(gang, 1);
  ASSERT_LT(gang[0]->Await("parked", 1)["step"], steps_);
  std::vector<RankResult> written;
  for (const auto& each : whole) written.push_back({.messages = each->Heard("shard_written")});
  Commit(written, steps_);
  std::filesystem::copy(dir_ + "/whole/checkpoints", dir_ + "/out/checkpoints",
                        std::filesystem::copy_options::recursive);
  Assign(2, {gang[0].get(), gang[1].get()});
  for (const auto& each : gang) {
    const Json resumed = each->Await("resumed", 2);
    EXPECT_EQ(resumed["from"], "checkpoint");
    EXPECT_EQ(resumed["step"], steps_);
  }
  ExpectDone(gang);
  EXPECT_EQ(*ReadFile(dir_ + "/out/model/model.safetensors"),
            *ReadFile(dir_ + "/whole/model/model.safetensors"));
}

class DamagedCheckpoint : public RankSnapshotsTest {
 protected:
  // A finished run in "whole" and one in "out" that was parked earlier; the checkpoints of the
  // finished one are committed in both, and its last one is damaged.
  Gang ParkedBeforeADamagedCheckpoint() {
    Gang whole = Start(Job("whole"), 2);
    Assign(1, {whole[0].get(), whole[1].get()});
    ExpectDone(whole);
    node_.DropAll();
    Gang gang = Start(Job("out"), 2);
    Assign(1, {gang[0].get(), gang[1].get()});
    ExpectFirstStep(gang, 1);
    ParkAll(gang, 1);
    std::vector<RankResult> written;
    for (const auto& each : whole) written.push_back({.messages = each->Heard("shard_written")});
    Commit(written, steps_);
    std::filesystem::copy(dir_ + "/whole/checkpoints", dir_ + "/out/checkpoints",
                          std::filesystem::copy_options::recursive);
    Damage();
    return gang;
  }

  // In the last shard of the newest checkpoint, so that ranks have read much when they find it.
  void Damage() const {
    const Json list = Json::parse(*ReadFile(resume_file_));
    const Json& newest = list[0];
    const std::string path = dir_ + "/out/checkpoints/" + newest["directory"].get<std::string>() +
                             "/" + newest["shards"][1]["file"].get<std::string>();
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(file) << path;
    file.seekg(-100, std::ios::end);
    const int byte = file.get();
    file.seekp(-100, std::ios::end);
    file.put(static_cast<char>(byte ^ 1));
  }
};

TEST_F(DamagedCheckpoint, OfAHigherStepLeavesTheSnapshotsToGoOnFrom) {
  const Gang gang = ParkedBeforeADamagedCheckpoint();
  Assign(2, {gang[0].get(), gang[1].get()});
  ExpectSnapshot({gang[0].get(), gang[1].get()}, 2);
  for (const auto& each : gang) {
    const Json rejected = each->Await("resumed", 2)["rejected"];
    ASSERT_EQ(rejected.size(), 1u);
    EXPECT_THAT(rejected[0]["reason"].get<std::string>(), ::testing::HasSubstr("is damaged"));
  }
  ExpectDone(gang);
  EXPECT_THAT(node_.names(), UnorderedElementsAre("g2-rank0", "g2-rank1"));
  ExpectTheBitsOf("out", "whole");
}

TEST_F(DamagedCheckpoint, MayBeFoundInEveryRecoveryOfAGang) {
  const Gang gang = ParkedBeforeADamagedCheckpoint();
  Assign(2, {gang[0].get(), gang[1].get()});
  const Step first = ExpectSnapshot({gang[0].get(), gang[1].get()}, 2);
  ParkAll(gang, 2);
  Assign(3, {gang[0].get(), gang[1].get()});
  EXPECT_GE(ExpectSnapshot({gang[0].get(), gang[1].get()}, 3), first);
  ExpectDone(gang);
  ExpectTheBitsOf("out", "whole");
}

// Two nodes of one rank each; the second goes with all that its guardian held.
class LostNode : public RankSnapshotsTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    RankSnapshotsTest::SetUp();
    if (GetParam()) ::setenv("MUSTER_SHM_DISABLE", "1", 1);
  }
  void TearDown() override {
    ::unsetenv("MUSTER_SHM_DISABLE");
    RankSnapshotsTest::TearDown();
  }
};
INSTANTIATE_TEST_SUITE_P(, LostNode, ::testing::Bool(), [](const auto& info) {
  return info.param ? "CopiesWereSent" : "DescriptorsWereHeld";
});

TEST_P(LostNode, ItsShardComesFromTheBuddy) {
  ranks_per_node_ = 1;
  steps_ = 40;
  Undisturbed("whole");
  TestNode lost, spare;
  Gang gang;
  gang.push_back(StartOne(Job("out")));
  gang.push_back(std::make_unique<TestProcess>(Job("out"), lost));
  gang.push_back(std::make_unique<TestProcess>(Job("out"), spare));
  Assign(1, {gang[0].get(), gang[1].get()});
  gang[1]->Await("first_step", 1);
  // The copy of a step arrives during the next.
  EXPECT_TRUE(Eventually([this] {
    const Result<std::string> log = ReadFile(dir_ + "/out/metrics.jsonl");
    return log.ok() && std::ranges::count(*log, '\n') >= 3;
  }));
  gang[1]->Park(1);
  for (const int i : {0, 1}) gang[static_cast<std::size_t>(i)]->Await("parked", 1);
  Assign(2, {gang[0].get(), gang[2].get()});
  ExpectSnapshot({gang[0].get(), gang[2].get()}, 2);
  EXPECT_TRUE(gang[0]->AwaitEnd().ok());
  EXPECT_TRUE(gang[2]->AwaitEnd().ok());
  ExpectTheBitsOf("out", "whole");
}

TEST_F(RankSnapshotsTest, ReplicasOfOneNodeKeepTheirOwnSegments) {
  JobSpec spec = Job("out");
  spec.train->fsdp.strategy = ShardingStrategy::kNoShard;
  Gang gang = Start(spec, 2);
  for (const Generation generation : {1, 2, 3}) {
    Assign(generation, {gang[0].get(), gang[1].get()});
    ExpectFirstStep(gang, generation);
    if (generation < 3) ParkAll(gang, generation);
  }
  ExpectDone(gang);
  EXPECT_THAT(node_.names(), UnorderedElementsAre("g1-rank0", "g1-rank1"));
  EXPECT_EQ(LossHistory("out").size(), static_cast<std::size_t>(steps_));
}

// No state is whole any more, and there is no checkpoint: the survivor's segment is made use of,
// but not what the lost course of training left in it.
TEST_F(RankSnapshotsTest, WhoStartsOverInAnOldSegmentHasNoMomentsOfBefore) {
  steps_ = 40;
  Undisturbed("whole");
  TestNode lost, spare;
  Gang gang;
  gang.push_back(StartOne(Job("out")));
  gang.push_back(std::make_unique<TestProcess>(Job("out"), lost));
  gang.push_back(std::make_unique<TestProcess>(Job("out"), spare));
  Assign(1, {gang[0].get(), gang[1].get()});
  gang[1]->Await("first_step", 1);
  gang[1]->Park(1);
  for (const int i : {0, 1}) gang[static_cast<std::size_t>(i)]->Await("parked", 1);
  Assign(2, {gang[0].get(), gang[2].get()});
  EXPECT_EQ(gang[0]->Await("resumed", 2)["from"], "start");
  EXPECT_TRUE(gang[0]->AwaitEnd().ok());
  EXPECT_TRUE(gang[2]->AwaitEnd().ok());
  EXPECT_THAT(node_.names(), ElementsAre("g1-rank0"));
  ExpectTheBitsOf("out", "whole");
}

TEST_F(RankSnapshotsTest, WithoutSnapshotsARecoveryStartsOver) {
  JobSpec spec = Job("out");
  spec.train->snapshot.every = 0;
  Gang gang = Start(spec, 2);
  Assign(1, {gang[0].get(), gang[1].get()});
  ExpectFirstStep(gang, 1);
  ParkAll(gang, 1);
  EXPECT_TRUE(node_.names().empty());
  Assign(2, {gang[0].get(), gang[1].get()});
  EXPECT_EQ(gang[0]->Await("resumed", 2)["from"], "start");
  ExpectDone(gang);
  EXPECT_EQ(LossHistory("out").size(), static_cast<std::size_t>(steps_));
}

TEST_F(RankSnapshotsTest, AStopAfterARecoverySavesWhatOnlySnapshotsHad) {
  const Gang gang = Start(Endless("out", 2), 2);
  Assign(1, {gang[0].get(), gang[1].get()});
  ExpectFirstStep(gang, 1);
  ParkAll(gang, 1);
  Assign(2, {gang[0].get(), gang[1].get()});
  gang[1]->Stop();
  ExpectDone(gang);
  for (const auto& each : gang) {
    const Json shard = each->Await("shard_written", 2);
    EXPECT_GE(shard["step"], each->Await("resumed", 2)["step"]);
  }
}

TEST_F(RankSnapshotsTest, MemoryOfSegmentsIsWrittenDown) {
  Undisturbed("out");
  const Json memory = ReadJson("out/memory.json");
  for (const Json& rank : memory["ranks"]) {
    // Two slots of weights and two moments in fp32, half the model each.
    EXPECT_GE(rank["arrays"]["snapshots"], SmallConfig().ParameterCount() / 2 * 12 * 2);
  }
}

}  // namespace
}  // namespace muster
