// Rank processes over several generations: assignments, parking, standbys, stops.
#include "trainer/train/rank_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "trainer/train/testing/rank_process_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

TEST_F(RankProcessTest, AStopInTheMiddleIsAgreedOnAndLeavesACheckpoint) {
  Gang gang = Start(Endless("out", 2), 2);
  Assign(1, {gang[0].get(), gang[1].get()});
  ExpectFirstStep(gang, 1);
  gang[1]->Stop();
  std::vector<Json> shards;
  for (const auto& each : gang) {
    EXPECT_TRUE(each->AwaitEnd().ok());
    shards.push_back(each->Await("shard_written", 1));
    EXPECT_TRUE(each->Heard("finished").empty());
  }
  EXPECT_EQ(shards[0]["step"], shards[1]["step"]);
  EXPECT_EQ(shards[0]["step"], Metrics("out").back()["step"]);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/out/model"));
}

TEST_F(RankProcessTest, AProfileThatAStopCutsShortIsWritten) {
  JobSpec spec = Endless("out", 2);
  spec.train->profile = {.start = 1, .steps = 900'000};
  Gang gang = Start(spec, 2);
  Assign(1, {gang[0].get(), gang[1].get()});
  ExpectFirstStep(gang, 1);
  gang[0]->Stop();
  for (const auto& each : gang) EXPECT_TRUE(each->AwaitEnd().ok());
  EXPECT_EQ(ReadJson("out/profile/table.json")["steps"], Metrics("out").size());
}

TEST_F(RankProcessTest, CalledOffRanksParkAndServeTheNextGeneration) {
  Gang gang = Start(Endless("out", 2), 2);
  Assign(1, {gang[0].get(), gang[1].get()});
  ExpectFirstStep(gang, 1);
  for (const auto& each : gang) each->Park(1);
  std::size_t errors = 0;
  for (const auto& each : gang) {
    EXPECT_FALSE(each->Await("parked", 1).is_null());
    errors += each->Heard("error").size();
  }
  EXPECT_LE(errors, 1u)
      << "the rank that is called off first has lost no peer; its peer may feel it before it "
         "is called off too";
  // With their ranks exchanged.
  Assign(2, {gang[1].get(), gang[0].get()});
  ExpectFirstStep(gang, 2);
  gang[0]->Stop();
  for (const auto& each : gang) EXPECT_TRUE(each->AwaitEnd().ok());
  EXPECT_EQ(gang[0]->Await("shard_written", 2)["shard"]["rank"], 1);
  EXPECT_EQ(Metrics("out").back()["generation"], 2);
}

TEST_F(RankProcessTest, ALostPeerIsReportedOnceAndTheSurvivorGoesOnWithAStandby) {
  const JobSpec spec = Endless("out", 2);
  Gang gang = Start(spec, 2);
  Assign(1, {gang[0].get(), gang[1].get()});
  ExpectFirstStep(gang, 1);
  gang[1]->Park(1);  // what its peer sees of it is a rank that is gone
  EXPECT_FALSE(gang[0]->Await("parked", 1).is_null());
  EXPECT_EQ(gang[0]->Await("error", 1)["kind"], "peer_lost");
  gang[0]->Park(1);  // comes late
  const std::unique_ptr<TestProcess> standby = StartOne(spec);
  EXPECT_FALSE(standby->Await("standby_ready", 0).is_null());
  Assign(2, {standby.get(), gang[0].get()});
  EXPECT_FALSE(gang[0]->Await("first_step", 2).is_null());
  EXPECT_EQ(gang[0]->Heard("parked").size(), 1u);
  EXPECT_EQ(gang[0]->Heard("error").size(), 1u);
}

TEST_F(RankProcessTest, AParkEndsFormingAtOnce) {
  Gang gang = Start(Endless("out", 2), 1);
  Assign(1, {gang[0].get()});
  ExpectFirstStep(gang, 1);
  gang[0]->Park(1);
  gang[0]->Await("parked", 1);
  testing::Listener master = testing::Listen();
  gang[0]->Assign(2, 0, 2, master, resume_file_);  // its peer never comes
  gang[0]->Park(2);
  EXPECT_FALSE(gang[0]->Await("parked", 2).is_null());
  EXPECT_TRUE(gang[0]->Heard("error").empty());
}

TEST_F(RankProcessTest, AGenerationThatWasCalledOffBeforeItWasTakenUpIsParkedUnseen) {
  Gang gang = Start(Endless("out", 1), 1);
  testing::Listener one = testing::Listen(), two = testing::Listen();
  gang[0]->Assign(1, 0, 1, one, resume_file_);
  gang[0]->Park(1);
  gang[0]->Assign(2, 0, 1, two, resume_file_);
  gang[0]->Park(1);  // of a generation that is over
  EXPECT_FALSE(gang[0]->Await("first_step", 2).is_null());
  EXPECT_FALSE(gang[0]->Await("parked", 1).is_null());
  EXPECT_EQ(gang[0]->Heard("parked").size(), 1u);
}

TEST_F(RankProcessTest, ARankWithoutPeersParksBetweenSteps) {
  Gang gang = Start(Endless("out", 1), 1);
  Assign(1, {gang[0].get()});
  ExpectFirstStep(gang, 1);
  gang[0]->Park(1);
  EXPECT_FALSE(gang[0]->Await("parked", 1).is_null());
}

// An end of a pipe in place of a lock: its other end says whether anything holds it.
TEST_F(RankProcessTest, TheLockOfADeviceIsKeptUntilAnAssignmentWithoutIt) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd watch(ends[0]);
  UniqueFd lock(ends[1]);
  const auto is_held = [&] {
    pollfd entry{watch.get(), POLLIN, 0};
    return ::poll(&entry, 1, 0) == 0;
  };
  Gang gang = Start(Endless("out", 1), 1);
  testing::Listener one = testing::Listen(), two = testing::Listen();
  gang[0]->Assign(1, 0, 1, one, resume_file_, 0, lock.get());
  lock.reset();
  ExpectFirstStep(gang, 1);
  gang[0]->Park(1);
  gang[0]->Await("parked", 1);
  EXPECT_TRUE(is_held());
  gang[0]->Assign(2, 0, 1, two, resume_file_);
  ExpectFirstStep(gang, 2);
  EXPECT_FALSE(is_held());
}

TEST_F(RankProcessTest, AFaultOfItsOwnEndsTheProcess) {
  std::ofstream(dir_ + "/rows.jsonl", std::ios::app) << "{\"prompt\": \n";
  Gang gang = Start(Endless("out", 1), 1);
  testing::Listener master = testing::Listen();
  gang[0]->Assign(1, 0, 1, master, resume_file_);
  const TrainStatus failure = gang[0]->AwaitEnd();
  ASSERT_FALSE(failure.ok());
  EXPECT_EQ(failure.exit_code(), kExitBadInput);
  EXPECT_TRUE(gang[0]->Heard("parked").empty());
}

TEST_F(RankProcessTest, AnInjectedNanIsTheRanksOwnFault) {
  Gang gang = Start(Endless("out", 2), 2);
  Assign(1, {gang[0].get(), gang[1].get()});
  ExpectFirstStep(gang, 1);
  gang[1]->Send({{"type", "fault"}, {"kind", "nan"}, {"argument", ""}});
  for (std::size_t rank = 0; rank < gang.size(); ++rank) {
    const TrainStatus failure = gang[rank]->AwaitEnd();
    ASSERT_FALSE(failure.ok());
    EXPECT_EQ(failure.kind_name(), "nonfinite");
    EXPECT_EQ(failure.symptom(), rank != 1);
    EXPECT_THAT(failure.message(), HasSubstr("not finite is rank 1: loss of micro-batch "));
  }
}

// Only the rank that had it saw that the loss was none; the other one took it for an overflow.
TEST_F(RankProcessTest, AnInjectedNanIsNoOverflowOfFp16) {
  JobSpec spec = Endless("out", 2);
  spec.train->fsdp.mixed_precision = MixedPrecision::kFp16;
  Gang gang = Start(spec, 2);
  Assign(1, {gang[0].get(), gang[1].get()});
  ExpectFirstStep(gang, 1);
  gang[0]->Send({{"type", "fault"}, {"kind", "nan"}, {"argument", ""}});
  for (std::size_t rank = 0; rank < gang.size(); ++rank) {
    const TrainStatus failure = gang[rank]->AwaitEnd();
    ASSERT_FALSE(failure.ok());
    EXPECT_EQ(failure.kind_name(), "nonfinite");
    EXPECT_EQ(failure.symptom(), rank != 0);
  }
}

TEST_F(RankProcessTest, WhoWaitsForAnAssignmentEndsByAStop) {
  Gang gang = Start(Endless("out", 1), 1);
  gang[0]->Await("standby_ready", 0);
  gang[0]->Stop();
  EXPECT_TRUE(gang[0]->AwaitEnd().ok());
}

TEST_F(RankProcessTest, AStandbyThatCannotReadItsInputsFails) {
  JobSpec spec = Endless("out", 1);
  spec.train->model.path = "nowhere";
  Gang gang = Start(spec, 1);
  const TrainStatus failure = gang[0]->AwaitEnd();
  ASSERT_FALSE(failure.ok());
  EXPECT_EQ(failure.kind_name(), "model");
  EXPECT_TRUE(gang[0]->Heard("standby_ready").empty());
}

TEST_F(RankProcessTest, AGenerationThatIsDoneEndsTheProcess) {
  JobSpec spec = Endless("out", 2);
  spec.train->schedule.max_steps = 2;
  Gang gang = Start(spec, 2);
  Assign(1, {gang[0].get(), gang[1].get()});
  for (const auto& each : gang) {
    EXPECT_TRUE(each->AwaitEnd().ok());
    EXPECT_EQ(each->Await("finished", 1)["step"], 2);
    EXPECT_TRUE(each->Heard("parked").empty());
  }
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/out/model/model.safetensors"));
}

// Global batch, order of rows and loss stay those of the job as it was submitted.
TEST_F(RankProcessTest, AGangOfAnyNumberOfRanksTrainsOnTheSameBatches) {
  constexpr int kSteps = 4;
  std::vector<std::vector<Json>> runs;
  for (const int ranks : {2, 1, 3, 4, 5}) {
    const std::string output = "ranks-" + std::to_string(ranks);
    JobSpec spec = Endless(output, 2);
    spec.train->schedule.max_steps = kSteps;
    spec.train->fsdp.mixed_precision = MixedPrecision::kFp32;
    TestNode node;  // nothing is left of the run before
    Gang gang;
    std::vector<TestProcess*> processes;
    for (int i = 0; i < ranks; ++i) {
      gang.push_back(std::make_unique<TestProcess>(spec, node));
      processes.push_back(gang.back().get());
    }
    Assign(1, processes);
    for (const auto& each : gang) ASSERT_TRUE(each->AwaitEnd().ok());
    runs.push_back(Metrics(output));
    ASSERT_EQ(runs.back().size(), static_cast<std::size_t>(kSteps));
    for (std::size_t i = 0; i < kSteps; ++i) {
      for (const char* key : {"step", "lr", "tokens", "samples", "sample_chain"}) {
        EXPECT_EQ(runs.back()[i][key], runs[0][i][key]) << key << " with " << ranks;
      }
      const double loss = runs[0][i]["loss"];
      EXPECT_NEAR(runs.back()[i]["loss"].get<double>(), loss, 1e-4 * loss) << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace muster
