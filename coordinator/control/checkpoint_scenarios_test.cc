// Scenarios of checkpoints: gathered, committed under the generation, resumed from, pruned.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/checkpoint_format/shard_name.h"
#include "coordinator/control/control_harness.h"

namespace muster {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Training : RunningJob {
  // A recovery whose ranks resume at `step`.
  void Recover(Step step) {
    Exited(id, 1, {0, 9});
    QuiesceAll(id);
    Advance(seconds(2));
    StartAll(id);
    TrainFrom(id, step);
  }
  std::vector<std::string> Resume() {
    std::vector<std::string> directories;
    const std::vector<Launch> launches = Take<Launch>("n1");
    for (const CheckpointInfo& point : launches.back().resume) {
      directories.push_back(point.directory);
    }
    return directories;
  }
};

TEST(CheckpointTest, AllShardsMakeACommitThatIsStoredBeforeItIsSent) {
  Training h;
  h.Shard(h.id, 1, 10);
  EXPECT_TRUE(h.stored().checkpoints.empty());
  h.Shard(h.id, 1, 10);  // repeated
  EXPECT_TRUE(h.stored().checkpoints.empty());
  h.Shard(h.id, 0, 10);
  ASSERT_EQ(h.stored().checkpoints.size(), 1u);
  const CheckpointRecord& stored = h.stored().checkpoints[0];
  EXPECT_EQ(stored.state, CheckpointState::kCommitted);
  EXPECT_EQ(stored.generation, 1);
  EXPECT_EQ(stored.world_size, 2);
  ASSERT_EQ(stored.shards.size(), 2u);
  EXPECT_EQ(stored.shards[0].rank, 0);
  const CheckpointCommitted sent = h.Take<CheckpointCommitted>("n1").at(0);
  EXPECT_EQ(sent.checkpoint.directory, "step-00000010-g1");
  EXPECT_EQ(sent.output_dir, "/jobs/out-tiny");
  EXPECT_TRUE(sent.prune.empty());
  EXPECT_TRUE(h.Take<CheckpointCommitted>("n2").empty());
  EXPECT_TRUE(h.HasEvent(h.id, "checkpoint_committed", "step 10 committed (2.0 kB in 2 shards)"));
  EXPECT_EQ(h.Job(h.id).record->committed_step, 10);
}

TEST(CheckpointTest, ShardsOfAnotherGenerationAreNeverCommitted) {
  Training h;
  h.Shard(h.id, 0, 10);
  const std::string directory = h.Directory(h.id, 10);
  h.Recover(0);
  h.Deliver("n2",
            TrainerReport{h.id, 1, 1, ShardWritten{10, directory, {1, ShardFileName(1), 1, "x"}}});
  for (const CheckpointRecord& checkpoint : h.stored().checkpoints) {
    EXPECT_NE(checkpoint.state, CheckpointState::kCommitted);
  }
  // Half a checkpoint of the old generation and half of the new one make none.
  h.Deliver("n2",
            TrainerReport{h.id, 2, 1, ShardWritten{10, directory, {1, ShardFileName(1), 1, "x"}}});
  EXPECT_EQ(h.Job(h.id).record->committed_step, 0);
}

TEST(CheckpointTest, AReportUnderAnotherRanksNameIsRefused) {
  Training h;
  h.Report(h.id, 0, ShardWritten{10, "step-10", {1, ShardFileName(1), 1, "x"}});
  h.Report(h.id, 1, ShardWritten{10, "step-10", {1, ShardFileName(1), 1, "x"}});
  h.Report(h.id, 0, ShardWritten{10, "../../etc", {0, ShardFileName(0), 1, "x"}});
  h.Report(h.id, 1, ShardWritten{10, "../../etc", {1, ShardFileName(1), 1, "x"}});
  EXPECT_TRUE(h.stored().checkpoints.empty());
}

// The worker opens it and the commit record names it: a rank may name its own file alone.
TEST(CheckpointTest, AShardUnderAnotherNameThanItsRanksIsRefused) {
  for (const char* name : {"../../../etc/passwd", "rank-00000.shard", "rank-00001.shard.tmp",
                           "rank-1.shard", "/rank-00001.shard", ""}) {
    Training h;
    const std::string directory = h.Directory(h.id, 10);
    h.Shard(h.id, 0, 10);
    h.observations.clear();
    h.Report(h.id, 1, ShardWritten{10, directory, {1, name, 1, "x"}});
    EXPECT_TRUE(h.stored().checkpoints.empty()) << name;
    EXPECT_EQ(h.observations.size(), 1u) << "counted as a message that was refused";
  }
}

TEST(CheckpointTest, ShardsThatArriveDuringTheAbortStillCount) {
  Training h;
  h.Shard(h.id, 1, 10);
  h.Exited(h.id, 1, {0, 9});
  h.Shard(h.id, 0, 10);
  EXPECT_EQ(h.Job(h.id).record->committed_step, 10);
  h.QuiesceAll(h.id);
  h.PrepareAll(h.id);
  EXPECT_THAT(h.Resume(), ElementsAre("step-00000010-g1"));
}

TEST(CheckpointTest, OldOnesArePrunedOnlyWithANewersCommitAndForgottenOnceItIsOnDisk) {
  Training h;
  for (Step step : {10, 20}) {
    h.Checkpoint(h.id, step);
    h.Manifest(h.id, h.Directory(h.id, step));
  }
  EXPECT_TRUE(h.Take<CheckpointCommitted>("n1").back().prune.empty());
  h.Checkpoint(h.id, 30);
  EXPECT_THAT(h.Take<CheckpointCommitted>("n1").back().prune, ElementsAre("step-00000010-g1"));
  EXPECT_EQ(h.stored().checkpoints.size(), 3u);
  h.Manifest(h.id, h.Directory(h.id, 30), false);
  EXPECT_EQ(h.stored().checkpoints.size(), 3u) << "pruned before the newer one is safe";
  EXPECT_TRUE(h.HasEvent(h.id, "checkpoint_failed", "disk full"));
  h.Checkpoint(h.id, 40);
  EXPECT_THAT(h.Take<CheckpointCommitted>("n1").back().prune, ElementsAre("step-00000010-g1"));
  h.Manifest(h.id, h.Directory(h.id, 40));
  EXPECT_EQ(h.stored().checkpoints.size(), 3u) << "30, 20 and 40";
}

// A train job that evaluates, whose checkpoints all are read again.
struct Evaluated : RunningJob {
  explicit Evaluated(const std::string& eval) : RunningJob(Yaml(eval)) {}
  static std::string Yaml(const std::string& eval) {
    std::string yaml = TrainYaml("evaluated");
    const std::string rows = "data: {train: train.jsonl";
    return yaml.replace(yaml.find(rows), rows.size(), rows + ", eval_ratio: 0.1") +
           "  eval: " + eval + "\n";
  }
  std::vector<std::string> Kept() const {
    std::vector<std::string> kept;
    for (const CheckpointRecord& each : stored().checkpoints)
      if (each.state == CheckpointState::kCommitted) kept.push_back(each.directory);
    return kept;
  }
  void Save(Step step, std::optional<double> eval_loss) {
    Checkpoint(id, step, eval_loss);
    Manifest(id, Directory(id, step));
  }
};

TEST(CheckpointTest, TheBestIsKeptUntilThereIsABetter) {
  Evaluated h("{every: 10}");
  h.Save(20, 3.5);
  EXPECT_EQ(h.stored().checkpoints[0].eval_loss, 3.5);
  h.Save(30, 2.5);
  h.Save(40, 2.75);
  h.Save(50, {});
  h.Save(60, 2.5);
  h.Save(70, 9);
  // Of equal ones the newer is the best.
  EXPECT_THAT(h.Kept(), ElementsAre("step-00000060-g1", "step-00000070-g1"));
  h.Save(80, 8);
  h.Save(90, 7);
  EXPECT_THAT(h.Kept(), ElementsAre("step-00000060-g1", "step-00000080-g1", "step-00000090-g1"));
}

TEST(CheckpointTest, TheBestThatIsWholeIsKeptAsLongAsABetterOneWasNotReadAgain) {
  Evaluated h("{every: 10}");
  h.Save(20, 2);
  h.Checkpoint(h.id, 30, 1);  // its reading is not over
  h.Save(40, 5);
  h.Save(50, 5);
  h.Save(60, 5);
  EXPECT_THAT(h.Kept(), ElementsAre("step-00000020-g1", "step-00000030-g1", "step-00000050-g1",
                                    "step-00000060-g1"));
}

TEST(CheckpointTest, AJobThatKeepsNoBestKeepsTheNewestAlone) {
  Evaluated h("{every: 10, keep_best: false}");
  h.Save(20, 1);
  h.Save(30, 2);
  h.Save(40, 3);
  EXPECT_THAT(h.Kept(), ElementsAre("step-00000030-g1", "step-00000040-g1"));
}

TEST(CheckpointTest, OnesThatWereNotReadAgainMakeNoVerifiedOneNeedless) {
  Training h;
  for (Step step : {10, 20}) {
    h.Checkpoint(h.id, step);
    h.Manifest(h.id, h.Directory(h.id, step));
  }
  for (Step step : {30, 40, 50}) h.Checkpoint(h.id, step);  // their reading is not over
  EXPECT_THAT(h.Take<CheckpointCommitted>("n1").back().prune, ElementsAre("step-00000010-g1"));
  for (Step step : {30, 40, 50}) h.Manifest(h.id, h.Directory(h.id, step));
  h.Checkpoint(h.id, 60);
  EXPECT_THAT(h.Take<CheckpointCommitted>("n1").back().prune,
              ElementsAre("step-00000020-g1", "step-00000030-g1", "step-00000040-g1"));
}

TEST(CheckpointTest, TheLastVerifiedOneIsOfferedUntilANewerIsVerified) {
  std::string yaml = TrainYaml("single");
  yaml.replace(yaml.find("keep: 2"), 7, "keep: 1");
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(yaml);
  h.RunTo(id, 12);
  h.Checkpoint(id, 10);
  h.Manifest(id, h.Directory(id, 10));
  h.Checkpoint(id, 20);
  h.Forget();
  h.Exited(id, 1, {0, 9});
  h.QuiesceAll(id);
  h.StartAll(id);
  const std::vector<CheckpointInfo> resume = h.Take<Launch>("n1").back().resume;
  ASSERT_EQ(resume.size(), 2u) << "the newest may be damaged";
  EXPECT_EQ(resume[0].step, 20);
  EXPECT_EQ(resume[1].step, 10);
}

TEST(CheckpointTest, WhatWasToMakeRoomForOneThatIsNotSafeOnDiskIsResumedFromAgain) {
  Training h;
  for (Step step : {10, 20}) {
    h.Checkpoint(h.id, step);
    h.Manifest(h.id, h.Directory(h.id, step));
  }
  h.Checkpoint(h.id, 30);
  h.Manifest(h.id, h.Directory(h.id, 30), false);
  h.Recover(30);
  EXPECT_THAT(h.Resume(), ElementsAre("step-00000030-g1", "step-00000020-g1", "step-00000010-g1"));
}

// Two commits are on their way; the newer one's node has done its part first.
TEST(CheckpointTest, WhatAnotherCommitMayHaveRemovedIsNotTakenBack) {
  Training h;
  for (Step step : {10, 20}) {
    h.Checkpoint(h.id, step);
    h.Manifest(h.id, h.Directory(h.id, step));
  }
  for (Step step : {30, 40}) h.Checkpoint(h.id, step);
  const auto sent = h.Take<CheckpointCommitted>("n1");
  ASSERT_THAT(sent.back().prune, ElementsAre("step-00000010-g1"));
  h.Manifest(h.id, h.Directory(h.id, 30), false);
  for (const CheckpointRecord& checkpoint : h.stored().checkpoints) {
    EXPECT_TRUE(checkpoint.step != 10 || checkpoint.state == CheckpointState::kPruning);
  }
  h.Manifest(h.id, h.Directory(h.id, 40), false);
  h.Recover(40);
  EXPECT_THAT(h.Resume(), ElementsAre("step-00000040-g1", "step-00000030-g1", "step-00000020-g1",
                                      "step-00000010-g1"));
}

// A launch removes what no commit record and no offer speaks for.
TEST(CheckpointTest, OneWithoutACommitRecordThatWasToGoIsNotTakenBack) {
  Training h;
  h.Checkpoint(h.id, 10);  // its reading is not over
  for (Step step : {20, 30}) {
    h.Checkpoint(h.id, step);
    h.Manifest(h.id, h.Directory(h.id, step));
  }
  h.Checkpoint(h.id, 40);
  h.Forget();
  h.Manifest(h.id, h.Directory(h.id, 40), false);
  h.Recover(40);
  EXPECT_THAT(h.Resume(), ElementsAre("step-00000040-g1", "step-00000030-g1", "step-00000020-g1"));
}

TEST(CheckpointTest, PrunedOnesAreNeverResumedFrom) {
  Training h;
  for (Step step : {10, 20, 30}) {
    h.Checkpoint(h.id, step);
    if (step < 30) h.Manifest(h.id, h.Directory(h.id, step));
  }
  h.Recover(30);
  EXPECT_THAT(h.Resume(), ElementsAre("step-00000030-g1", "step-00000020-g1"));
}

TEST(CheckpointTest, CommitIsSaidAgainUntilItsManifestIsWritten) {
  Training h;
  h.Checkpoint(h.id, 10);
  HostedGeneration hosted = h.Hosted("n1", h.id, AttemptState::kRunning);
  h.Forget();
  h.Leave("n1");
  h.Join("n1", {.hosted = {hosted}});
  ASSERT_EQ(h.Take<CheckpointCommitted>("n1").size(), 1u);
  h.Restart();
  h.Join("n1", {.hosted = {hosted}});
  ASSERT_EQ(h.Take<CheckpointCommitted>("n1").size(), 1u);
  h.Manifest(h.id, h.Directory(h.id, 10));
  h.Leave("n1");
  h.Join("n1", {.hosted = {hosted}});
  EXPECT_TRUE(h.Take<CheckpointCommitted>("n1").empty());
}

TEST(CheckpointTest, ReplayedShardsOfACommittedCheckpointChangeNothing) {
  Training h;
  h.Checkpoint(h.id, 10);
  h.Forget();
  h.Checkpoint(h.id, 10);
  EXPECT_EQ(h.CountEvents(h.id, "checkpoint_committed"), 1);
  EXPECT_TRUE(h.sends().empty());
}

TEST(CheckpointTest, ASuccessfulJobWaitsForItsLastManifest) {
  Training h;
  h.Checkpoint(h.id, 100);
  h.FinishAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  h.Manifest(h.id, h.Directory(h.id, 100));
  EXPECT_EQ(h.State(h.id), JobState::kSucceeded);
}

TEST(CheckpointTest, AManifestThatNeverComesHoldsASuccessOnlySoLong) {
  ControllerOptions options;
  options.lease = std::chrono::hours(1);
  ControlHarness h(options);
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 12);
  h.Checkpoint(id, 100);
  h.FinishAll(id);
  h.Advance(seconds(40));
  EXPECT_EQ(h.State(id), JobState::kSucceeded);
}

TEST(CheckpointTest, ARefusedCheckpointIsNotedOnceAndNotOfferedAgain) {
  Training h;
  h.Checkpoint(h.id, 10);
  h.Manifest(h.id, h.Directory(h.id, 10));
  h.Checkpoint(h.id, 20);
  h.Manifest(h.id, h.Directory(h.id, 20));
  h.Exited(h.id, 1, {0, 9});
  h.QuiesceAll(h.id);
  h.StartAll(h.id);
  EXPECT_THAT(h.Resume(), ElementsAre("step-00000020-g1", "step-00000010-g1"));
  h.ReportAll(h.id, Formed{});
  for (int rank : {1, 0}) {
    h.Report(h.id, rank,
             Resumed{10, {{"step-00000020-g1", "checksum of rank-00001.shard differs"}}});
  }
  EXPECT_THAT(h.Attempt(h.id).notes,
              ElementsAre("checkpoint step-00000020-g1 refused: rank 1: checksum of "
                          "rank-00001.shard differs"));
  EXPECT_EQ(h.CountEvents(h.id, "checkpoint_refused"), 1);
  EXPECT_EQ(h.Job(h.id).record->committed_step, 10);
  h.Exited(h.id, 1, {0, 9});
  h.QuiesceAll(h.id);
  h.PrepareAll(h.id);
  EXPECT_THAT(h.Resume(), ElementsAre("step-00000010-g1"));
}

// Without any it would begin anew; the trainer says that none is good.
TEST(CheckpointTest, RefusedOnesAreOfferedWhereThereIsNoOther) {
  Training h;
  for (Step step : {10, 20}) {
    h.Checkpoint(h.id, step);
    h.Manifest(h.id, h.Directory(h.id, step));
  }
  h.Recover(20);
  h.Report(h.id, 0,
           Resumed{20, {{"step-00000010-g1", "rank 0: damaged"}, {"step-00000020-g1", "it too"}}});
  ASSERT_EQ(h.CountEvents(h.id, "checkpoint_refused"), 2) << h.Timeline();
  h.Forget();
  h.Recover(20);
  EXPECT_THAT(h.Resume(), ElementsAre("step-00000020-g1", "step-00000010-g1"));
}

// The first of two nodes that were asked to write a commit record is heard of last.
TEST(CheckpointTest, TheWordOfANodeThatWasAskedEarlierTakesNothingBack) {
  ControlHarness h;
  for (const char* node : {"n1", "n2", "n3"}) h.Join(node);
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 12);
  for (Step step : {10, 20}) {
    h.Checkpoint(id, step);
    h.Manifest(id, h.Directory(id, step));
  }
  h.Checkpoint(id, 30);
  h.Leave("n1");
  h.Advance(seconds(11));
  h.QuiescedOn("n2", id);
  ASSERT_EQ(h.Attempt(id).generation, 2) << h.Timeline();
  h.StartAll(id);
  ASSERT_NE(h.Attempt(id).nodes.front().value, "n1");
  h.Join("n1");
  h.Deliver("n1", ManifestWritten{
                      .job = id, .directory = "step-00000030-g1", .error = "a shard is missing"});
  for (const CheckpointRecord& checkpoint : h.stored().checkpoints) {
    EXPECT_TRUE(checkpoint.step != 10 || checkpoint.state == CheckpointState::kPruning);
  }
}

TEST(CheckpointTest, AFailedCheckpointIsNotedAndTheJobGoesOn) {
  Training h;
  h.Report(h.id, 1, CheckpointFailed{10, "no space left on device"});
  h.Report(h.id, 1, CheckpointFailed{10, "no space left on device"});
  EXPECT_EQ(h.CountEvents(h.id, "checkpoint_failed"), 1);
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
}

// The notes of an attempt are bounded: when they were full, failures were taken for replays.
TEST(CheckpointTest, EveryFailedCheckpointOfALongAttemptIsTold) {
  Training h;
  for (Step step = 10; step <= 1000; step += 10) {
    h.Report(h.id, 1, CheckpointFailed{step, "no space left on device"});
  }
  h.Report(h.id, 1, CheckpointFailed{10, "no space left on device"});
  EXPECT_EQ(h.CountEvents(h.id, "checkpoint_failed"), 100);
  EXPECT_LE(h.Attempt(h.id).notes.size(), 50u);
}

TEST(CheckpointTest, ACommitRecordThatWasLostWithItsNodeIsAskedOfTheNextOne) {
  ControlHarness h;
  for (const char* node : {"n1", "n2", "n3"}) h.Join(node);
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 12);
  h.Checkpoint(id, 10);
  h.Leave("n1");
  h.Advance(std::chrono::seconds(11));
  h.ParkedOn("n2", id);
  const std::string front = h.Attempt(id).nodes.front().value;
  ASSERT_NE(front, "n1");
  h.Forget();
  h.PrepareAll(id);
  const auto asked = h.Take<CheckpointCommitted>(front);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].checkpoint.step, 10);
}

TEST(CheckpointTest, OnlyTheFirstNodeIsToldTheShardsOfWhatThereIsToResumeFrom) {
  Training h;
  h.Checkpoint(h.id, 10);
  h.Exited(h.id, 1, {0, 9});
  h.QuiesceAll(h.id);
  h.Advance(seconds(2));
  h.PrepareAll(h.id);
  EXPECT_EQ(h.Take<Launch>("n1").at(0).resume.at(0).shards.size(), 2u);
  const std::vector<CheckpointInfo> elsewhere = h.Take<Launch>("n2").at(0).resume;
  ASSERT_EQ(elsewhere.size(), 1u);
  EXPECT_EQ(elsewhere[0].directory, "step-00000010-g1");
  EXPECT_TRUE(elsewhere[0].shards.empty());
}

TEST(CheckpointTest, LeftoversOfAnUnfinishedCheckpointArePrunedWithTheNextCommit) {
  Training h;
  h.Shard(h.id, 0, 10);
  h.Recover(0);
  h.Forget();
  h.Checkpoint(h.id, 10);
  EXPECT_THAT(h.Take<CheckpointCommitted>("n1").at(0).prune, ElementsAre("step-00000010-g1"));
  h.Manifest(h.id, "step-00000010-g2");
  ASSERT_EQ(h.stored().checkpoints.size(), 1u);
  EXPECT_EQ(h.stored().checkpoints[0].directory, "step-00000010-g2");
}

TEST(CheckpointTest, WhatLacksAShardIsPrunedWithTheNextCommitOfItsOwnGeneration) {
  Training h;
  h.Shard(h.id, 0, 10);
  h.Report(h.id, 1, CheckpointFailed{10, "no space left on device"});
  h.Checkpoint(h.id, 20);
  EXPECT_THAT(h.Take<CheckpointCommitted>("n1").at(0).prune, ElementsAre("step-00000010-g1"));
}

TEST(CheckpointTest, AFullDiskThatIsCleanedAgainEndsNoCheckpointing) {
  Training h;
  for (int step = 10; step <= 400; step += 10) h.Shard(h.id, 0, step);
  h.Forget();
  h.Checkpoint(h.id, 410);
  EXPECT_EQ(h.Take<CheckpointCommitted>("n1").size(), 1u);
  EXPECT_EQ(h.Job(h.id).record->committed_step, 410);
}

TEST(CheckpointTest, NewCommitsAreProgress) {
  Training h;
  for (int attempt = 0; attempt < 5; ++attempt) {
    h.Checkpoint(h.id, 13 + attempt);  // no higher step is ever seen, but it is durable
    h.Recover(12);
    ASSERT_EQ(h.State(h.id), JobState::kRunning) << h.Timeline();
    EXPECT_EQ(h.Job(h.id).record->attempts_without_progress, 0);
  }
  EXPECT_THAT(h.Job(h.id).attempts->front().cause, HasSubstr("SIGKILL"));
}

}  // namespace
}  // namespace muster
