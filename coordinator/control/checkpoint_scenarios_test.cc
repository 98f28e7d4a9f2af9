// Scenarios of checkpoints: gathered, committed under the generation, resumed from, pruned.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/checkpoint_format/shard_name.h"
#include "coordinator/control/testing/control_harness.h"

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
  // Steps of the committed checkpoints that stay.
  std::vector<Step> Committed() const {
    std::vector<Step> steps;
    for (const CheckpointRecord& each : stored().checkpoints)
      if (each.state == CheckpointState::kCommitted) steps.push_back(each.step);
    std::sort(steps.begin(), steps.end());
    return steps;
  }
  // Those whose commit record is not written.
  std::vector<CheckpointRecord> Committing() const {
    std::vector<CheckpointRecord> all = stored().checkpoints;
    std::erase_if(all, [](const CheckpointRecord& each) {
      return each.state != CheckpointState::kCommitted || each.manifest_written;
    });
    return all;
  }
  // The contents of the newest outstanding order.
  void RemovePruned() {
    for (const CheckpointCommitted& committed : Take<CheckpointCommitted>("n1"))
      if (!committed.prune.empty()) CommitRecord(id, committed.checkpoint.directory);
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
  h.Deliver("n2", TrainerReport{.job = h.id,
                                .generation = 1,
                                .rank = 1,
                                .body = ShardWritten{.step = 10,
                                                     .directory = directory,
                                                     .shard = {1, ShardFileName(1), 1, "x"}}});
  for (const CheckpointRecord& checkpoint : h.stored().checkpoints) {
    EXPECT_NE(checkpoint.state, CheckpointState::kCommitted);
  }
  // Half a checkpoint of the old generation and half of the new one make none.
  h.Deliver("n2", TrainerReport{.job = h.id,
                                .generation = 2,
                                .rank = 1,
                                .body = ShardWritten{.step = 10,
                                                     .directory = directory,
                                                     .shard = {1, ShardFileName(1), 1, "x"}}});
  EXPECT_EQ(h.Job(h.id).record->committed_step, 0);
}

TEST(CheckpointTest, AReportUnderAnotherRanksNameIsRefused) {
  Training h;
  h.Report(
      h.id, 0,
      ShardWritten{.step = 10, .directory = "step-10", .shard = {1, ShardFileName(1), 1, "x"}});
  h.Report(
      h.id, 1,
      ShardWritten{.step = 10, .directory = "step-10", .shard = {1, ShardFileName(1), 1, "x"}});
  h.Report(
      h.id, 0,
      ShardWritten{.step = 10, .directory = "../../etc", .shard = {0, ShardFileName(0), 1, "x"}});
  h.Report(
      h.id, 1,
      ShardWritten{.step = 10, .directory = "../../etc", .shard = {1, ShardFileName(1), 1, "x"}});
  EXPECT_TRUE(h.stored().checkpoints.empty());
}

// The worker opens it and the commit record names it: a rank may name only its own file.
TEST(CheckpointTest, AShardUnderAnotherNameThanItsRanksIsRefused) {
  for (const char* name : {"../../../etc/passwd", "rank-00000.shard", "rank-00001.shard.tmp",
                           "rank-1.shard", "/rank-00001.shard", ""}) {
    Training h;
    const std::string directory = h.Directory(h.id, 10);
    h.Shard(h.id, 0, 10);
    h.observations.clear();
    h.Report(h.id, 1, ShardWritten{.step = 10, .directory = directory, .shard = {1, name, 1, "x"}});
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

TEST(CheckpointTest, OldOnesArePrunedOnlyOnceANewerWasReadAgainAndForgottenOnceTheyAreGone) {
  Training h;
  for (Step step : {10, 20}) {
    h.Checkpoint(h.id, step);
    h.Manifest(h.id, h.Directory(h.id, step));
  }
  h.Checkpoint(h.id, 30);
  h.CommitRecord(h.id, h.Directory(h.id, 30));
  EXPECT_TRUE(h.Take<CheckpointCommitted>("n1").back().prune.empty());
  EXPECT_THAT(h.Committed(), ElementsAre(10, 20, 30)) << "pruned before the newer one is verified";
  h.ReadParts(h.id);
  EXPECT_THAT(h.Committed(), ElementsAre(20, 30));
  EXPECT_THAT(h.Take<CheckpointCommitted>("n1").at(0).prune, ElementsAre("step-00000010-g1"));
  EXPECT_EQ(h.stored().checkpoints.size(), 3u) << "forgotten before it is gone";
  h.CommitRecord(h.id, h.Directory(h.id, 30));
  EXPECT_EQ(h.stored().checkpoints.size(), 2u);
}

TEST(CheckpointTest, NothingIsPrunedForOneWithoutACommitRecord) {
  Training h;
  for (Step step : {10, 20}) {
    h.Checkpoint(h.id, step);
    h.Manifest(h.id, h.Directory(h.id, step));
  }
  h.Checkpoint(h.id, 30);
  h.Manifest(h.id, h.Directory(h.id, 30), false);
  EXPECT_TRUE(h.HasEvent(h.id, "checkpoint_failed", "disk full"));
  EXPECT_THAT(h.Committed(), ElementsAre(10, 20, 30));
  h.Checkpoint(h.id, 40);
  h.Manifest(h.id, h.Directory(h.id, 40));
  EXPECT_THAT(h.Committed(), ElementsAre(20, 40))
      << "what was read again stays before what was not";
}

TEST(CheckpointTest, ADirectoryThatTheNodeCouldNotRemoveIsAskedForAgain) {
  Training h;
  for (Step step : {10, 20, 30}) {
    h.Checkpoint(h.id, step);
    h.CommitRecord(h.id, h.Directory(h.id, step));
    h.ReadParts(h.id);
  }
  h.Deliver("n1",
            ManifestWritten{.job = h.id, .generation = 1, .directory = h.Directory(h.id, 30)});
  EXPECT_EQ(h.stored().checkpoints.size(), 3u);
  h.Forget();
  h.Checkpoint(h.id, 40);
  EXPECT_THAT(h.Take<CheckpointCommitted>("n1").at(0).prune, ElementsAre("step-00000010-g1"));
  h.CommitRecord(h.id, h.Directory(h.id, 40));
  EXPECT_EQ(h.stored().checkpoints.size(), 3u) << "20, 30 and 40";
}

TEST(CheckpointTest, EachNodeReadsTheShardsOfItsOwnRanksAtOnce) {
  Training h;
  h.Checkpoint(h.id, 10);
  EXPECT_TRUE(h.TakeParts(h.id).empty()) << "before there is a commit record";
  h.CommitRecord(h.id, h.Directory(h.id, 10));
  auto parts = h.TakeParts(h.id);
  ASSERT_EQ(parts.size(), 2u);
  for (const RankRecord& rank : h.Attempt(h.id).ranks) {
    const ScrubCheckpoint& part = parts[rank.node.value];
    EXPECT_EQ(part.max_bytes_per_second, 0u);
    ASSERT_EQ(part.checkpoint.shards.size(), 1u);
    EXPECT_EQ(part.checkpoint.shards[0].rank, rank.rank);
  }
  h.AnswerPart("n1", parts["n1"], ScrubOutcome::kWhole);
  EXPECT_EQ(h.stored().checkpoints[0].verified_unix_ms, 0);
  h.AnswerPart("n2", parts["n2"], ScrubOutcome::kWhole);
  EXPECT_EQ(h.stored().checkpoints[0].verified_unix_ms, h.now().unix_ms);
}

TEST(CheckpointTest, AnAnswerOfANodeThatWasNotAskedOrASecondOneChangesNothing) {
  Training h;
  h.Join("n3");
  h.Checkpoint(h.id, 10);
  h.CommitRecord(h.id, h.Directory(h.id, 10));
  auto parts = h.TakeParts(h.id);
  h.observations.clear();
  h.AnswerPart("n1", parts["n1"], ScrubOutcome::kWhole);
  h.AnswerPart("n1", parts["n1"], ScrubOutcome::kDamaged);
  for (const char* node : {"n1", "n3"}) h.AnswerPart(node, parts["n2"], ScrubOutcome::kWhole);
  ScrubCheckpoint another = parts["n2"];
  another.checkpoint.directory = "step-00000020-g1";
  h.AnswerPart("n2", another, ScrubOutcome::kDamaged);
  EXPECT_EQ(h.stored().checkpoints[0].verified_unix_ms, 0);
  EXPECT_EQ(h.stored().checkpoints[0].refused, "");
  EXPECT_EQ(h.observations.size(), 3u) << "refused and counted";
  h.AnswerPart("n2", parts["n2"], ScrubOutcome::kWhole);
  EXPECT_NE(h.stored().checkpoints[0].verified_unix_ms, 0);
}

TEST(CheckpointTest, OneThatANodeFindsDamagedIsNotResumedFromAndTheOlderOnesAreThere) {
  Training h;
  for (Step step : {10, 20}) {
    h.Checkpoint(h.id, step);
    h.Manifest(h.id, h.Directory(h.id, step));
  }
  h.Checkpoint(h.id, 30);
  h.CommitRecord(h.id, h.Directory(h.id, 30));
  auto parts = h.TakeParts(h.id);
  h.Forget();
  h.AnswerPart("n2", parts["n2"], ScrubOutcome::kDamaged, "rank-00001.shard is damaged");
  EXPECT_TRUE(h.HasEvent(h.id, "checkpoint_damaged", "n2: rank-00001.shard is damaged"));
  EXPECT_EQ(h.Take<CancelScrub>("n1").at(0).scrub_id, parts["n1"].scrub_id);
  h.AnswerPart("n1", parts["n1"], ScrubOutcome::kWhole);
  EXPECT_EQ(h.Job(h.id).record->committed_step, 20);
  h.Recover(20);
  EXPECT_THAT(h.Resume(), ElementsAre("step-00000020-g1", "step-00000010-g1"));
}

TEST(CheckpointTest, ANodeThatCannotTellLeavesItToTheScrub) {
  Training h;
  h.Checkpoint(h.id, 10);
  h.CommitRecord(h.id, h.Directory(h.id, 10));
  auto parts = h.TakeParts(h.id);
  h.AnswerPart("n2", parts["n2"], ScrubOutcome::kUnreachable, "not mounted");
  h.Advance(seconds(1));
  const ScrubCheckpoint scrub = h.Take<ScrubCheckpoint>("n1").at(0);
  EXPECT_FALSE(scrub.at_once);
  EXPECT_EQ(scrub.checkpoint.shards.size(), 2u);
}

TEST(CheckpointTest, TheShardsOfANodeThatIsLostAreReadByAnother) {
  Training h;
  h.Checkpoint(h.id, 10);
  h.CommitRecord(h.id, h.Directory(h.id, 10));
  const auto lost = h.TakeParts(h.id);
  h.Leave("n2");
  auto parts = h.TakeParts(h.id);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts["n1"].checkpoint.shards.size(), 2u);
  h.AnswerPart("n1", lost.at("n1"), ScrubOutcome::kCalledOff);
  h.AnswerPart("n1", parts["n1"], ScrubOutcome::kWhole);
  EXPECT_NE(h.stored().checkpoints[0].verified_unix_ms, 0);
}

// The order went to the stream that the new one had replaced, and had no answer for ten minutes.
TEST(CheckpointTest, WhatAReplacedStreamWasToReadIsOrderedOnTheNewOne) {
  Training h;
  h.Checkpoint(h.id, 10);
  h.CommitRecord(h.id, h.Directory(h.id, 10));
  ASSERT_EQ(h.TakeParts(h.id).size(), 2u);
  h.Forget();
  ControlHarness::NodeOptions options;
  options.hosted = {h.Hosted("n1", h.id, AttemptState::kRunning)};
  const SessionId session = h.Join("n1", options);
  EXPECT_TRUE(std::ranges::all_of(h.sends(), [session](const WorkerSend& send) {
    return send.node.value != "n1" || send.session == session;
  }));
}

TEST(CheckpointTest, ANodeThatNeverAnswersIsGivenUpForTheScrub) {
  Training h;
  h.Checkpoint(h.id, 10);
  h.CommitRecord(h.id, h.Directory(h.id, 10));
  const auto parts = h.TakeParts(h.id);
  h.Advance(std::chrono::minutes(11));
  EXPECT_EQ(h.Take<CancelScrub>("n2").at(0).scrub_id, parts.at("n2").scrub_id);
  EXPECT_FALSE(h.Take<ScrubCheckpoint>("n1").at(0).at_once);
}

// Reading takes longer than two intervals: the number of checkpoints committed until then is
// bounded.
TEST(CheckpointTest, WhereReadingTakesTooLongCheckpointsAreSkippedAndReportedAsSkipped) {
  Training h;
  h.Checkpoint(h.id, 10);
  h.CommitRecord(h.id, h.Directory(h.id, 10));
  auto reading = h.TakeParts(h.id);
  for (Step step = 20; step <= 100; step += 10) {
    h.Checkpoint(h.id, step);
    if (step == 20) h.CommitRecord(h.id, h.Directory(h.id, step));
    EXPECT_LE(h.Committed().size(), 2u) << "one is read, one waits";
    if (step > 30) h.CommitRecord(h.id, h.Directory(h.id, 20));  // removes what was skipped
    EXPECT_LE(h.stored().checkpoints.size(), 3u) << "and the record of the newest that was skipped";
  }
  EXPECT_EQ(h.CountEvents(h.id, "checkpoint_skipped"), 7) << h.Timeline();
  EXPECT_EQ(h.CountEvents(h.id, "checkpoint_failed"), 0);
  EXPECT_EQ(h.Job(h.id).record->committed_step, 20);
  // The newest is committed when there is room, and read before the one that waited.
  for (const auto& [node, part] : reading) h.AnswerPart(node, part, ScrubOutcome::kWhole);
  EXPECT_THAT(h.Committed(), ElementsAre(10, 20, 100));
  h.CommitRecord(h.id, h.Directory(h.id, 100));
  EXPECT_EQ(h.TakeParts(h.id)["n1"].checkpoint.step, 100);
}

// Workers repeat the reports of all shards to a coordinator that starts again.
TEST(CheckpointTest, OneThatWasSkippedAndRemovedIsNotCommittedByARepeatedReport) {
  Training h;
  h.Checkpoint(h.id, 10);
  h.CommitRecord(h.id, h.Directory(h.id, 10));
  for (Step step : {20, 30, 40}) {
    h.Checkpoint(h.id, step);
    h.CommitRecord(h.id, h.Directory(h.id, 20));
  }
  ASSERT_THAT(h.Committed(), ElementsAre(10, 20));
  ASSERT_EQ(h.CountEvents(h.id, "checkpoint_skipped"), 1) << "30, as 40 is complete";
  const HostedGeneration n1 = h.Hosted("n1", h.id, AttemptState::kRunning);
  const HostedGeneration n2 = h.Hosted("n2", h.id, AttemptState::kRunning);
  h.Restart();
  h.Join("n1", {.hosted = {n1}});
  h.Join("n2", {.hosted = {n2}});
  h.Checkpoint(h.id, 30);
  EXPECT_THAT(h.Committed(), ElementsAre(10, 20)) << "its files are gone";
  h.Checkpoint(h.id, 40);
  EXPECT_THAT(h.Committed(), ElementsAre(10, 20, 40));
}

TEST(CheckpointTest, ANewerCommitCallsOffTheReadingThatAnOlderOneWaitsFor) {
  Training h;
  for (Step step : {10, 20}) {
    h.Checkpoint(h.id, step);
    h.CommitRecord(h.id, h.Directory(h.id, step));
  }
  const auto first = h.TakeParts(h.id);
  ASSERT_EQ(first.at("n1").checkpoint.step, 10);
  h.Checkpoint(h.id, 30);
  for (const auto& [node, part] : first) h.AnswerPart(node, part, ScrubOutcome::kWhole);
  h.Manifest(h.id, h.Directory(h.id, 30));
  EXPECT_THAT(h.Committed(), ElementsAre(10, 30)) << "two are kept, and 20 was never read";
}

// At every moment: those that are kept, and two more.
TEST(CheckpointTest, AtMostTwoMoreThanAreKeptLieOnDiskWhereReadingTakesLessThanTwoIntervals) {
  Training h;
  std::map<std::string, ScrubCheckpoint> reading;
  Step read_until = 0;
  for (Step tenth = 10; tenth <= 600; ++tenth) {  // an interval is ten, a reading takes 19
    if (tenth % 10 == 0) h.Checkpoint(h.id, tenth);
    for (const CheckpointRecord& each : h.Committing()) h.CommitRecord(h.id, each.directory);
    if (!reading.empty() && tenth >= read_until) {
      for (const auto& [node, part] : reading) h.AnswerPart(node, part, ScrubOutcome::kWhole);
      reading.clear();
      for (const CheckpointRecord& each : h.Committing()) h.CommitRecord(h.id, each.directory);
      h.RemovePruned();
    }
    if (reading.empty()) {
      reading = h.TakeParts(h.id);
      read_until = tenth + 19;
    }
    ASSERT_LE(h.Committed().size(), 4u) << h.Timeline();
  }
  EXPECT_GT(h.CountEvents(h.id, "checkpoint_committed"), 30);
}

// A delayed checkpoint is committed before the gang ends, however it ends.
TEST(CheckpointTest, AFaultLosesNoStepOfACheckpointThatWasPutOff) {
  Training h;
  for (Step step : {10, 20, 30}) h.Checkpoint(h.id, step);
  EXPECT_EQ(h.Job(h.id).record->committed_step, 20);
  h.Recover(30);
  EXPECT_THAT(h.Resume(), ElementsAre("step-00000030-g1", "step-00000020-g1", "step-00000010-g1"));
}

TEST(CheckpointTest, WhatIsSavedForAStopIsNeverPutOff) {
  Training h;
  for (Step step : {10, 20}) h.Checkpoint(h.id, step);
  h.Suspend(h.id);
  h.Checkpoint(h.id, 30);
  EXPECT_EQ(h.Job(h.id).record->committed_step, 30);
}

// A train job that evaluates, and all of whose checkpoints are verified.
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
  // The newer of equal ones is the best.
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

TEST(CheckpointTest, AllAreResumedFromWhereTheNewestIsNotSafeOnDisk) {
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

TEST(CheckpointTest, PrunedOnesAreNeverResumedFrom) {
  Training h;
  for (Step step : {10, 20, 30}) {
    h.Checkpoint(h.id, step);
    h.CommitRecord(h.id, h.Directory(h.id, step));
    h.ReadParts(h.id);
  }
  h.Recover(30);
  EXPECT_THAT(h.Resume(), ElementsAre("step-00000030-g1", "step-00000020-g1"));
}

TEST(CheckpointTest, CommitIsSentAgainUntilItsManifestIsWritten) {
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

TEST(CheckpointTest, ASuccessfulJobWaitsUntilItsLastCheckpointWasReadAgain) {
  Training h;
  h.Checkpoint(h.id, 100);
  h.FinishAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  h.CommitRecord(h.id, h.Directory(h.id, 100));
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  h.ReadParts(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSucceeded);
}

TEST(CheckpointTest, AReadingThatTakesLongIsReportedAfterTheJobHasSucceeded) {
  for (const auto outcome : {ScrubOutcome::kWhole, ScrubOutcome::kDamaged}) {
    Training h;
    for (Step step : {80, 90}) {
      h.Checkpoint(h.id, step);
      h.Manifest(h.id, h.Directory(h.id, step));
    }
    h.Checkpoint(h.id, 100);
    h.CommitRecord(h.id, h.Directory(h.id, 100));
    const auto parts = h.TakeParts(h.id);
    h.FinishAll(h.id);
    h.Advance(seconds(40));
    ASSERT_EQ(h.State(h.id), JobState::kSucceeded);
    EXPECT_THAT(h.Committed(), ElementsAre(80, 90, 100));
    for (const auto& [node, part] : parts) h.AnswerPart(node, part, outcome, "bits");
    const bool whole = outcome == ScrubOutcome::kWhole;
    EXPECT_EQ(h.CountEvents(h.id, "checkpoint_damaged"), whole ? 0 : 1);
    EXPECT_EQ(h.Committed().size(), whole ? 2u : 3u) << "pruned after the end too";
  }
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
             Resumed{.step = 10,
                     .rejected = {
                         {"step-00000020-g1", "rank 1: checksum of rank-00001.shard differs"}}});
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

// Without any checkpoint it would start from the beginning; the trainer reports that none is good.
TEST(CheckpointTest, RefusedOnesAreOfferedWhereThereIsNoOther) {
  Training h;
  for (Step step : {10, 20}) {
    h.Checkpoint(h.id, step);
    h.Manifest(h.id, h.Directory(h.id, step));
  }
  h.Recover(20);
  h.Report(h.id, 0,
           Resumed{.step = 20,
                   .rejected = {{"step-00000010-g1", "rank 0: damaged"},
                                {"step-00000020-g1", "it too"}}});
  ASSERT_EQ(h.CountEvents(h.id, "checkpoint_refused"), 2) << h.Timeline();
  h.Forget();
  h.Recover(20);
  EXPECT_THAT(h.Resume(), ElementsAre("step-00000020-g1", "step-00000010-g1"));
}

// The answer of the first of two nodes that were asked to write a commit record arrives last.
TEST(CheckpointTest, ALateAnswerOfANodeThatLostTheJobIsNotTakenForTheNextNodes) {
  ControlHarness h;
  for (const char* node : {"n1", "n2", "n3"}) h.Join(node);
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 12);
  h.Checkpoint(id, 10);
  h.Leave("n1");
  h.Advance(seconds(11));
  h.QuiescedOn("n2", id);
  ASSERT_EQ(h.Attempt(id).generation, 2) << h.Timeline();
  h.StartAll(id);
  const std::string front = h.Attempt(id).nodes.front().value;
  ASSERT_NE(front, "n1");
  h.Join("n1");
  h.observations.clear();
  for (Generation generation : {1, 2})
    h.Deliver("n1", ManifestWritten{
                        .job = id, .generation = generation, .directory = "step-00000010-g1"});
  h.Deliver(front, ManifestWritten{.job = id, .generation = 1, .directory = "step-00000010-g1"});
  EXPECT_FALSE(h.stored().checkpoints.at(0).manifest_written);
  EXPECT_EQ(h.observations.size(), 3u) << "refused and counted";
  h.Deliver(front, ManifestWritten{.job = id, .generation = 2, .directory = "step-00000010-g1"});
  EXPECT_TRUE(h.stored().checkpoints.at(0).manifest_written);
}

TEST(CheckpointTest, ACommitRecordIsAnsweredOnceByTheNodeThatWasAsked) {
  Training h;
  for (Step step : {10, 20, 30}) {
    h.Checkpoint(h.id, step);
    if (step < 30) h.Manifest(h.id, h.Directory(h.id, step));
  }
  const std::string newest = h.Directory(h.id, 30);
  // From a node that was not asked, and with directories that were not to be removed.
  h.Deliver("n2",
            ManifestWritten{
                .job = h.id, .generation = 1, .directory = newest, .pruned = {"step-00000010-g1"}});
  EXPECT_THAT(h.Committed(), ElementsAre(10, 20, 30));
  h.Deliver("n1",
            ManifestWritten{
                .job = h.id, .generation = 1, .directory = newest, .pruned = {"step-00000010-g1"}});
  EXPECT_THAT(h.Committed(), ElementsAre(10, 20, 30));
  h.Deliver("n1", ManifestWritten{
                      .job = h.id, .generation = 1, .directory = newest, .error = "disk full"});
  EXPECT_EQ(h.CountEvents(h.id, "checkpoint_failed"), 0) << "the second answer";
}

TEST(CheckpointTest, OneThatWasNotBegunIsReportedAsSkipped) {
  Training h;
  h.Report(h.id, 1,
           CheckpointFailed{.step = 10,
                            .kind = CheckpointTrouble::kSlowDisk,
                            .reason = "the one before is still being written"});
  EXPECT_TRUE(h.HasEvent(h.id, "checkpoint_skipped", "step 10 skipped on rank 1: the one before"));
  EXPECT_EQ(h.CountEvents(h.id, "checkpoint_failed"), 0);
  EXPECT_THAT(h.Job(h.id).reason(), HasSubstr("checkpoints are skipped"));
}

TEST(CheckpointTest, AFailedCheckpointIsNotedAndTheJobGoesOn) {
  Training h;
  h.Report(h.id, 1, CheckpointFailed{.step = 10, .reason = "no space left on device"});
  h.Report(h.id, 1, CheckpointFailed{.step = 10, .reason = "no space left on device"});
  EXPECT_EQ(h.CountEvents(h.id, "checkpoint_failed"), 1);
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
}

// The notes of an attempt are bounded: when they were full, failures were mistaken for replays.
TEST(CheckpointTest, EveryFailedCheckpointOfALongAttemptIsReported) {
  Training h;
  for (Step step = 10; step <= 1000; step += 10) {
    h.Report(h.id, 1, CheckpointFailed{.step = step, .reason = "no space left on device"});
  }
  h.Report(h.id, 1, CheckpointFailed{.step = 10, .reason = "no space left on device"});
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

TEST(CheckpointTest, OnlyTheFirstNodeReceivesTheShardsOfTheCheckpointsToResumeFrom) {
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

// Discarded checkpoints went to the front of the list, whatever their step. A later commit then
// took its place by age in a list that was not in order, and counted as the oldest.
TEST(CheckpointTest, TheNewestVerifiedCheckpointStaysAfterSeveralWereDiscarded) {
  Training h;
  for (const Step step : {10, 20}) {
    h.Checkpoint(h.id, step);
    h.Manifest(h.id, h.Directory(h.id, step));
  }
  for (const Step step : {30, 40, 50, 60, 70}) h.Shard(h.id, 0, step);
  h.Recover(20);
  h.Checkpoint(h.id, 30);
  h.Manifest(h.id, h.Directory(h.id, 30));
  EXPECT_THAT(h.Committed(), ElementsAre(20, 30));
}

TEST(CheckpointTest, WhatLacksAShardIsPrunedWithTheNextCommitOfItsOwnGeneration) {
  Training h;
  h.Shard(h.id, 0, 10);
  h.Report(h.id, 1, CheckpointFailed{.step = 10, .reason = "no space left on device"});
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
