// Scenarios of scrubs: committed checkpoints are read again, and the result has consequences.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ControllerOptions EveryTenMinutes() {
  ControllerOptions options;
  options.scrub_interval = minutes(10);
  return options;
}

// A job on two nodes with checkpoints of steps 10 and 20, the first a minute older.
struct Scrubbed : ControlHarness {
  explicit Scrubbed(ControllerOptions options = EveryTenMinutes()) : ControlHarness(options) {
    Join("n1");
    Join("n2");
    id = Submit(TrainYaml());
    RunTo(id, 12);
    for (Step step : {10, 20}) {
      Checkpoint(id, step);
      Manifest(id, Directory(id, step));
      if (step == 10) Advance(minutes(1));
    }
    Forget();
  }
  // The only order, which only this node has received.
  ScrubCheckpoint Order(const std::string& node) {
    std::vector<ScrubCheckpoint> orders = Take<ScrubCheckpoint>(node);
    EXPECT_EQ(orders.size(), 1u) << node << "\n" << Timeline();
    EXPECT_FALSE(Ordered()) << Timeline();
    return orders.empty() ? ScrubCheckpoint{} : orders.front();
  }
  bool Ordered() const {
    return std::any_of(sends().begin(), sends().end(), [](const WorkerSend& send) {
      return std::holds_alternative<ScrubCheckpoint>(send.message);
    });
  }
  // Asks for the next scrub, which must come now, and answers.
  void Scrub(const std::string& node, ScrubOutcome outcome, const std::string& detail = "") {
    AnswerPart(node, Order(node), outcome, detail);
  }
  const CheckpointRecord& Stored(const std::string& directory) const {
    for (const CheckpointRecord& checkpoint : stored().checkpoints) {
      if (checkpoint.directory == directory) return checkpoint;
    }
    ADD_FAILURE() << "no " << directory;
    return stored().checkpoints.at(0);
  }
  std::vector<std::string> ResumeAfterAFault() {
    Exited(id, 1, {0, 9});
    QuiesceAll(id);
    Advance(seconds(2));
    StartAll(id);
    std::vector<std::string> directories;
    const std::vector<Launch> launches = Take<Launch>("n1");
    for (const CheckpointInfo& point : launches.back().resume) {
      directories.push_back(point.directory);
    }
    return directories;
  }
  void Verify(const JobId& job) { Handle(VerifyRequested{.request = kRequest, .job = job.value}); }
  // The answer to Verify; empty: not yet.
  std::optional<Reply> Answered() const {
    return LastReply().request == kRequest ? std::optional(LastReply()) : std::nullopt;
  }

  static constexpr RequestId kRequest = 900;
  static constexpr char kTen[] = "step-00000010-g1";
  static constexpr char kTwenty[] = "step-00000020-g1";
  JobId id;
};

TEST(ScrubTest, EachCheckpointIsReadAgainAnIntervalAfterItWasReadLast) {
  Scrubbed h;
  const std::int64_t written = h.Stored(Scrubbed::kTen).verified_unix_ms;
  EXPECT_GT(written, 0);
  h.Advance(minutes(8));
  EXPECT_FALSE(h.Ordered());
  h.Advance(minutes(1));
  const ScrubCheckpoint order = h.Order("n1");
  EXPECT_EQ(order.checkpoint.directory, Scrubbed::kTen);
  EXPECT_EQ(order.output_dir, "/jobs/out-tiny");
  EXPECT_EQ(order.checkpoint.shards.size(), 2u);
  EXPECT_GT(order.max_bytes_per_second, 0u);
  h.Advance(minutes(2));
  EXPECT_FALSE(h.Ordered()) << "one at a time";
  h.AnswerPart("n1", order, ScrubOutcome::kWhole);
  EXPECT_EQ(h.Stored(Scrubbed::kTen).verified_unix_ms, h.now().unix_ms);
  EXPECT_EQ(h.Order("n1").checkpoint.directory, Scrubbed::kTwenty);
}

TEST(ScrubTest, AnIntervalOfZeroReadsNothing) {
  ControllerOptions options;
  options.scrub_interval = Duration::zero();
  Scrubbed h(options);
  h.Advance(minutes(60));
  EXPECT_FALSE(h.Ordered());
}

TEST(ScrubTest, ADamagedOneIsReportedAndNotResumedFrom) {
  Scrubbed h;
  h.Advance(minutes(10));
  h.Scrub("n1", ScrubOutcome::kWhole);
  h.observations.clear();
  h.Scrub("n1", ScrubOutcome::kDamaged, "rank-00001.shard is damaged in bytes 4096 to 8191");
  EXPECT_TRUE(h.HasEvent(h.id, "checkpoint_damaged", "damaged in bytes 4096 to 8191"));
  EXPECT_TRUE(h.HasEvent(h.id, "checkpoint_damaged", Scrubbed::kTwenty));
  EXPECT_THAT(h.Stored(Scrubbed::kTwenty).refused, HasSubstr("n1: rank-00001.shard"));
  EXPECT_EQ(h.Job(h.id).record->committed_step, 10);
  ASSERT_EQ(h.observations.size(), 1u);
  EXPECT_EQ(std::get<ScrubObserved>(h.observations[0]).outcome, ScrubOutcome::kDamaged);
  h.Advance(minutes(5));
  EXPECT_FALSE(h.Ordered()) << "it is known to be damaged";
  EXPECT_THAT(h.ResumeAfterAFault(), ElementsAre(Scrubbed::kTen));
}

TEST(ScrubTest, ADamagedOneDoesNotCountForKeep) {
  Scrubbed h;
  h.Advance(minutes(10));
  h.Scrub("n1", ScrubOutcome::kWhole);
  h.Scrub("n1", ScrubOutcome::kDamaged, "bits");
  h.Checkpoint(h.id, 30);
  h.Manifest(h.id, h.Directory(h.id, 30));
  EXPECT_THAT(h.Take<CheckpointCommitted>("n1").back().prune, ElementsAre(Scrubbed::kTwenty));
  EXPECT_EQ(h.Stored(Scrubbed::kTen).state, CheckpointState::kCommitted);
}

TEST(ScrubTest, WhatOneNodeDoesNotSeeIsReadByAnother) {
  Scrubbed h;
  h.Advance(minutes(9));
  h.Scrub("n1", ScrubOutcome::kUnreachable, "/jobs/out-tiny is not here");
  h.Scrub("n2", ScrubOutcome::kWhole);
  EXPECT_EQ(h.Stored(Scrubbed::kTen).verified_unix_ms, h.now().unix_ms);
  EXPECT_EQ(h.CountEvents(h.id, "checkpoints_unreachable"), 0);
}

TEST(ScrubTest, ADirectoryThatNoNodeSeesIsReportedOnceAndIsNoDamage) {
  Scrubbed h;
  h.Advance(minutes(10));
  for (int round = 0; round < 2; ++round) {
    for (int checkpoint = 0; checkpoint < 2; ++checkpoint) {
      h.Scrub("n1", ScrubOutcome::kUnreachable, "/jobs/out-tiny is not here");
      h.Scrub("n2", ScrubOutcome::kUnreachable, "/jobs/out-tiny is not here");
    }
    EXPECT_FALSE(h.Ordered());
    EXPECT_EQ(h.CountEvents(h.id, "checkpoints_unreachable"), 1);
    if (round == 0) {
      h.Restart();
      h.Join("n1", {.hosted = {h.Hosted("n1", h.id, AttemptState::kRunning)}});
      h.Join("n2", {.hosted = {h.Hosted("n2", h.id, AttemptState::kRunning)}});
      h.Advance(minutes(10));
    }
  }
  EXPECT_TRUE(h.HasEvent(h.id, "checkpoints_unreachable", "/jobs/out-tiny is not here"));
  EXPECT_EQ(h.Stored(Scrubbed::kTen).refused, "");
  h.Advance(minutes(10));
  h.Scrub("n1", ScrubOutcome::kWhole);
  EXPECT_EQ(h.CountEvents(h.id, "checkpoints_reachable"), 0) << "one of two";
  h.Scrub("n1", ScrubOutcome::kWhole);
  EXPECT_EQ(h.CountEvents(h.id, "checkpoints_reachable"), 1);
}

TEST(ScrubTest, ADiskThatFailsIsAskedAgainAndHoldsUpNoOtherCheckpoint) {
  Scrubbed h;
  h.Advance(minutes(10));
  h.Scrub("n1", ScrubOutcome::kUnreadable, "read rank-00000.shard: Input/output error");
  h.Scrub("n2", ScrubOutcome::kUnreadable, "read rank-00000.shard: Input/output error");
  EXPECT_TRUE(h.HasEvent(h.id, "checkpoints_unreachable", "Input/output error"));
  h.Scrub("n1", ScrubOutcome::kWhole);
  EXPECT_EQ(h.Stored(Scrubbed::kTwenty).verified_unix_ms, h.now().unix_ms);
  h.Advance(minutes(10));
  EXPECT_EQ(h.Order("n1").checkpoint.directory, Scrubbed::kTen);
  EXPECT_EQ(h.CountEvents(h.id, "checkpoint_damaged"), 0);
}

TEST(ScrubTest, AFileThatAllMissAndANodeOfTheGangTooIsGone) {
  Scrubbed h;
  h.Join("n3");
  h.Advance(minutes(9));
  h.Scrub("n1", ScrubOutcome::kMissing, "open rank-00001.shard: No such file");
  h.Scrub("n2", ScrubOutcome::kMissing, "open rank-00001.shard: No such file");
  EXPECT_EQ(h.CountEvents(h.id, "checkpoint_damaged"), 0) << "a third one may have it";
  h.Scrub("n3", ScrubOutcome::kUnreachable, "not here");
  EXPECT_TRUE(h.HasEvent(h.id, "checkpoint_damaged", "rank-00001.shard: No such file"));
}

TEST(ScrubTest, AFileThatOnlyAnotherNodeMissesIsNotTakenForGone) {
  Scrubbed h;
  h.Join("n3");
  h.Advance(minutes(9));
  h.Scrub("n1", ScrubOutcome::kUnreachable, "not here");
  h.Scrub("n2", ScrubOutcome::kUnreachable, "not here");
  h.Scrub("n3", ScrubOutcome::kMissing, "open rank-00001.shard: No such file");
  EXPECT_EQ(h.CountEvents(h.id, "checkpoint_damaged"), 0);
  EXPECT_EQ(h.CountEvents(h.id, "checkpoints_unreachable"), 1);
}

TEST(ScrubTest, AWorkerThatDiesHalfwayIsAskedAgain) {
  Scrubbed h;
  h.Advance(minutes(9));
  const ScrubCheckpoint lost = h.Order("n1");
  const HostedGeneration hosted = h.Hosted("n1", h.id, AttemptState::kRunning);
  h.Leave("n1");
  h.Join("n1", {.instance = "second", .hosted = {hosted}});
  h.Advance(seconds(5));
  const ScrubCheckpoint again = h.Order("n1");
  EXPECT_EQ(again.checkpoint.directory, lost.checkpoint.directory);
  h.AnswerPart("n1", lost, ScrubOutcome::kDamaged, "of an order that was given up");
  EXPECT_EQ(h.CountEvents(h.id, "checkpoint_damaged"), 0);
  h.AnswerPart("n1", again, ScrubOutcome::kWhole);
  EXPECT_EQ(h.Stored(Scrubbed::kTen).verified_unix_ms, h.now().unix_ms);
}

TEST(ScrubTest, ACoordinatorThatStartsAgainAsksAgain) {
  Scrubbed h;
  h.Advance(minutes(9));
  EXPECT_EQ(h.Order("n1").checkpoint.directory, Scrubbed::kTen);
  const HostedGeneration first = h.Hosted("n1", h.id, AttemptState::kRunning);
  const HostedGeneration second = h.Hosted("n2", h.id, AttemptState::kRunning);
  h.Restart();
  h.Join("n1", {.hosted = {first}});
  h.Join("n2", {.hosted = {second}});
  h.Advance(seconds(5));
  EXPECT_EQ(h.Order("n1").checkpoint.directory, Scrubbed::kTen);
}

TEST(ScrubTest, ANodeThatDoesNotAnswerIsGivenUpForAnother) {
  Scrubbed h;
  h.Advance(minutes(9));
  const ScrubCheckpoint order = h.Order("n1");
  h.Advance(minutes(11));
  EXPECT_EQ(h.Take<CancelScrub>("n1").at(0).scrub_id, order.scrub_id);
  EXPECT_EQ(h.Order("n2").checkpoint.directory, order.checkpoint.directory);
}

TEST(ScrubTest, OneThatWasPrunedMeanwhileMayBeGone) {
  Scrubbed h;
  h.Verify(h.id);
  const ScrubCheckpoint order = h.Order("n1");
  h.Checkpoint(h.id, 30);
  h.CommitRecord(h.id, h.Directory(h.id, 30));
  h.ReadParts(h.id);
  ASSERT_EQ(h.Stored(Scrubbed::kTen).state, CheckpointState::kPruning);
  h.AnswerPart("n1", order, ScrubOutcome::kMissing, "no such file");
  EXPECT_EQ(h.CountEvents(h.id, "checkpoint_damaged"), 0);
}

// The worker runs no scrub while it verifies a checkpoint.
TEST(ScrubTest, AScrubWaitsWhileANewCheckpointIsReadForTheFirstTime) {
  Scrubbed h;
  h.Advance(minutes(9));
  const ScrubCheckpoint order = h.Order("n1");
  h.Checkpoint(h.id, 30);
  h.CommitRecord(h.id, h.Directory(h.id, 30));
  EXPECT_EQ(h.Take<CancelScrub>("n1").at(0).scrub_id, order.scrub_id);
  const auto parts = h.TakeParts(h.id);
  h.Advance(minutes(5));
  EXPECT_FALSE(h.Ordered());
  for (const auto& [node, part] : parts) h.AnswerPart(node, part, ScrubOutcome::kWhole);
  EXPECT_EQ(h.Order("n1").checkpoint.directory, Scrubbed::kTwenty);
}

TEST(ScrubTest, ARequestWaitsForTheCheckpointThatIsReadForTheFirstTime) {
  Scrubbed h;
  h.Checkpoint(h.id, 30);
  h.CommitRecord(h.id, h.Directory(h.id, 30));
  const auto parts = h.TakeParts(h.id);
  h.Verify(h.id);
  for (int older = 0; older < 2; ++older) h.Scrub("n1", ScrubOutcome::kWhole);
  EXPECT_FALSE(h.Answered());
  for (const auto& [node, part] : parts) h.AnswerPart(node, part, ScrubOutcome::kWhole);
  ASSERT_TRUE(h.Answered());
  EXPECT_EQ(std::get<CheckpointsVerified>(h.Answered()->body).whole, 3);
}

// A clock that was set back by hours made every checkpoint due in the same moment.
TEST(ScrubTest, AClockThatIsSetMakesNoCheckpointDue) {
  for (const auto by : {-std::chrono::hours(5), std::chrono::hours(5)}) {
    Scrubbed h;
    h.SetWallClock(by);
    h.Checkpoint(h.id, 30);
    h.CommitRecord(h.id, h.Directory(h.id, 30), false);  // plans again
    h.Advance(seconds(1));
    h.Scrub("n1", ScrubOutcome::kWhole);  // of 30, which was never read
    EXPECT_FALSE(h.Ordered());
  }
}

TEST(ScrubTest, AGangThatComesUpIsNotDisturbed) {
  Scrubbed h;
  h.Advance(minutes(9) - seconds(5));
  h.Exited(h.id, 1, {0, 9});
  h.QuiesceAll(h.id);
  h.StartAll(h.id);
  h.Advance(seconds(8));
  EXPECT_EQ(h.State(h.id), JobState::kRecovering);
  EXPECT_FALSE(h.Ordered());
  h.TrainFrom(h.id, 20);
  h.Advance(seconds(5));
  EXPECT_EQ(h.Order("n1").checkpoint.directory, Scrubbed::kTen);
}

TEST(ScrubTest, ANodeReadsForOneJobAtATime) {
  Scrubbed h;
  h.Join("n3", {.slots = 2});
  const JobId other = h.Submit(
      "name: other\nresources: {nodes: 1, ranks_per_node: 2}\nworkdir: /jobs\ntrain:\n"
      "  model: {path: model}\n  data: {train: train.jsonl}\n"
      "  schedule: {max_steps: 100}\n  output: {dir: out-other}\n");
  h.RunTo(other, 12);
  h.Checkpoint(other, 10);
  h.Manifest(other, h.Directory(other, 10));
  h.Forget();
  h.Verify(other);
  const ScrubCheckpoint order = h.Order("n3");
  h.Leave("n1");
  h.Leave("n2");
  h.Verify(h.id);
  h.Advance(seconds(1));
  EXPECT_FALSE(h.Ordered()) << "n3 is the only one left, and it reads for another job";
  h.AnswerPart("n3", order, ScrubOutcome::kWhole);
  h.Advance(seconds(3));
  EXPECT_EQ(h.Order("n3").job, h.id);
}

struct Ended : Scrubbed {
  Ended() {
    FinishAll(id);
    EXPECT_EQ(State(id), JobState::kSucceeded);
    Forget();
  }
};

TEST(ScrubTest, WhatASucceededJobHasLeftIsReadAgain) {
  Ended h;
  h.Advance(minutes(10));
  h.Scrub("n1", ScrubOutcome::kWhole);
  h.Scrub("n1", ScrubOutcome::kDamaged, "bits");
  EXPECT_TRUE(h.HasEvent(h.id, "checkpoint_damaged"));
  EXPECT_EQ(h.State(h.id), JobState::kSucceeded);
}

TEST(ScrubTest, WhatASucceededJobHasLeftIsReadAgainAfterARestart) {
  Ended h;
  h.Restart();
  h.Join("n1");
  h.Advance(minutes(10));
  EXPECT_EQ(h.Order("n1").checkpoint.directory, Scrubbed::kTen);
}

TEST(ScrubTest, ACoordinatorThatStartsWithAClockThatWasSetBackWaitsAnInterval) {
  Ended h;
  h.SetWallClock(-std::chrono::hours(5));
  h.Restart();
  h.Join("n1");
  h.Advance(minutes(9));
  EXPECT_FALSE(h.Ordered());
  h.Advance(minutes(2));
  EXPECT_EQ(h.Order("n1").checkpoint.directory, Scrubbed::kTen);
}

TEST(ScrubTest, AnotherJobsOutputDirectoryIsNoLongerTheFormerOnes) {
  Ended h;
  h.Submit(TrainYaml());
  h.Advance(minutes(10));
  EXPECT_FALSE(h.Ordered());
}

TEST(ScrubTest, WhatACancelledJobHasLeftIsReadOnlyOnRequest) {
  Scrubbed h;
  h.Cancel(h.id);
  h.QuiesceAll(h.id);
  ASSERT_EQ(h.State(h.id), JobState::kCancelled);
  h.Advance(minutes(20));
  EXPECT_FALSE(h.Ordered());
  h.Verify(h.id);
  h.Scrub("n1", ScrubOutcome::kWhole);
  h.Scrub("n1", ScrubOutcome::kWhole);
  ASSERT_TRUE(h.Answered());
  EXPECT_EQ(std::get<CheckpointsVerified>(h.Answered()->body).whole, 2);
}

TEST(ScrubTest, ACallerThatHasGoneIsNotAnswered) {
  Scrubbed h;
  h.Verify(h.id);
  h.Handle(CallerGone{Scrubbed::kRequest});
  h.Scrub("n1", ScrubOutcome::kWhole);
  h.Scrub("n1", ScrubOutcome::kWhole);
  EXPECT_FALSE(h.Answered());
}

TEST(ScrubTest, ARequestIsAnsweredWhenAllWasRead) {
  Scrubbed h;
  h.Verify(h.id);
  h.Scrub("n1", ScrubOutcome::kWhole);
  EXPECT_FALSE(h.Answered());
  h.Scrub("n1", ScrubOutcome::kDamaged, "bits");
  ASSERT_TRUE(h.Answered());
  ASSERT_TRUE(h.Answered()->status.ok()) << h.Answered()->status.ToString();
  const auto verified = std::get<CheckpointsVerified>(h.Answered()->body);
  EXPECT_EQ(verified.whole, 1);
  EXPECT_THAT(verified.damaged, ElementsAre(Scrubbed::kTwenty));
  EXPECT_FALSE(h.Ordered());
}

TEST(ScrubTest, ARequestDuringAnotherCountsEachCheckpointOnce) {
  Scrubbed h;
  h.Handle(VerifyRequested{.request = Scrubbed::kRequest - 1, .job = h.id.value});
  h.Scrub("n1", ScrubOutcome::kWhole);
  h.Verify(h.id);
  for (int order = 0; order < 4 && !h.Answered(); ++order) h.Scrub("n1", ScrubOutcome::kWhole);
  ASSERT_TRUE(h.Answered());
  EXPECT_EQ(std::get<CheckpointsVerified>(h.Answered()->body).whole, 2);
}

TEST(ScrubTest, WhatIsKnownToBeDamagedIsReportedAgain) {
  Scrubbed h;
  h.Verify(h.id);
  h.Scrub("n1", ScrubOutcome::kWhole);
  h.Scrub("n1", ScrubOutcome::kDamaged, "bits");
  h.Verify(h.id);
  h.Scrub("n1", ScrubOutcome::kWhole);
  ASSERT_TRUE(h.Answered());
  const auto verified = std::get<CheckpointsVerified>(h.Answered()->body);
  EXPECT_EQ(verified.whole, 1);
  EXPECT_THAT(verified.damaged, ElementsAre(Scrubbed::kTwenty));
}

TEST(ScrubTest, ARequestSaysWhatCouldNotBeRead) {
  Scrubbed h;
  h.Verify(h.id);
  for (int checkpoint = 0; checkpoint < 2; ++checkpoint) {
    h.Scrub("n1", ScrubOutcome::kUnreachable, "not mounted");
    h.Scrub("n2", ScrubOutcome::kUnreachable, "not mounted");
  }
  ASSERT_TRUE(h.Answered());
  EXPECT_EQ(h.Answered()->status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(h.Answered()->status.message(), HasSubstr("not mounted"));
}

TEST(ScrubTest, ARequestWithoutANodeOrACheckpointIsAnsweredAtOnce) {
  Scrubbed h;
  h.Verify(JobId{"nonsense"});
  ASSERT_TRUE(h.Answered());
  EXPECT_EQ(h.Answered()->status.code(), StatusCode::kNotFound);
  const JobId waiting = h.Submit(TrainYaml("waiting"));
  h.Verify(waiting);
  ASSERT_TRUE(h.Answered());
  EXPECT_EQ(std::get<CheckpointsVerified>(h.Answered()->body).whole, 0);
  h.Submit(TrainYaml("another"));
  h.Leave("n1");
  h.Leave("n2");
  h.Verify(h.id);
  ASSERT_TRUE(h.Answered());
  EXPECT_EQ(h.Answered()->status.code(), StatusCode::kFailedPrecondition);
}

TEST(ScrubTest, ACommitThatWasNotSafeOnDiskIsReadAgainAtOnce) {
  Scrubbed h;
  h.Checkpoint(h.id, 30);
  h.Manifest(h.id, "step-00000030-g1", false);
  h.Advance(seconds(1));
  EXPECT_EQ(h.Order("n1").checkpoint.directory, "step-00000030-g1");
}

}  // namespace
}  // namespace muster
