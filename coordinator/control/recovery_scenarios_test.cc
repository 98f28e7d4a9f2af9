// Scenarios of faults: ranks, nodes, workers and the coordinator itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// --- ranks ---

TEST(RankFaultTest, AKilledRankAbortsAllAtOnceAndTheJobTrainsAgain) {
  RunningJob h;
  h.Advance(milliseconds(100));
  h.Exited(h.id, 1, {0, 9}, 0.01);
  EXPECT_EQ(h.State(h.id), JobState::kRecovering);
  EXPECT_DOUBLE_EQ(h.Take<Abort>("n1").at(0).grace_seconds, 0);
  EXPECT_EQ(h.Take<Abort>("n2").size(), 1u);
  h.Advance(milliseconds(20));
  h.Ended(h.id, 0);  // by the abort: not an event
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.Job(h.id).record->generation, 2);
  const AttemptRecord& ended = h.Job(h.id).attempts->front();
  EXPECT_EQ(ended.cause, "rank 1 on n2 was killed by SIGKILL");
  EXPECT_EQ(ended.failed_rank, 1);
  EXPECT_EQ(ended.cause_kind, CauseKind::kRankKilled);
  EXPECT_THAT(ended.log_tail.at(0), HasSubstr("rank 1"));
  EXPECT_EQ(h.Attempt(h.id).nodes.front().value, "n1") << "rank order is kept";

  h.StartAll(h.id);
  h.Advance(milliseconds(300));
  h.ReportAll(h.id, Formed{});
  h.Advance(milliseconds(200));
  h.ReportAll(h.id, Resumed{.step = 10});
  h.Advance(milliseconds(100));
  h.Report(h.id, 1, FirstStep{11});
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  const StageSeconds& s = h.Attempt(h.id).seconds;
  EXPECT_NEAR(s.detect, 0.01, 1e-9);
  EXPECT_NEAR(s.abort, 0.02, 1e-9);
  EXPECT_NEAR(s.reform, 0.3, 1e-9);
  EXPECT_NEAR(s.load, 0.2, 1e-9);
  EXPECT_NEAR(s.first_step, 0.1, 1e-9);
  EXPECT_EQ(h.Attempt(h.id).resumed_step, 10);
  EXPECT_EQ(h.Job(h.id).attempts->front().lost_steps, 2);
  EXPECT_TRUE(h.HasEvent(h.id, "recovered", "training again 0.63 s after the fault: detect 0.01 s"))
      << h.Timeline();
  EXPECT_TRUE(h.HasEvent(h.id, "recovered", "resumed at step 10, 2 steps to do again"));
  h.FinishAll(h.id);
  EXPECT_EQ(h.Job(h.id).reason(), "finished at step 11 after 1 restart");
}

TEST(RankFaultTest, AbortIsDurableBeforeItIsSent) {
  RunningJob h;
  h.Exited(h.id, 1, {0, 9});
  bool stored = false;
  for (const StoreOperation& operation : h.last().store) {
    const auto* put = std::get_if<PutAttempt>(&operation);
    stored |= put != nullptr && put->attempt.state == AttemptState::kAborting;
  }
  EXPECT_TRUE(stored);
  EXPECT_EQ(h.last().sends.size(), 2u);
}

TEST(RankFaultTest, ASymptomAbortsAtOnceAndTheCauseIsNamedWhenItArrives) {
  RunningJob h;
  h.Exited(h.id, 0, {76, 0});
  EXPECT_EQ(h.Take<Abort>("n2").size(), 1u) << "whatever the cause is, the gang is broken";
  h.Advance(milliseconds(5));
  h.Exited(h.id, 1, {0, 9}, 0.001);  // killed from outside, right before its guardian would
  h.QuiesceAll(h.id);
  const AttemptRecord& ended = h.Job(h.id).attempts->front();
  EXPECT_EQ(ended.cause, "rank 1 on n2 was killed by SIGKILL");
  EXPECT_EQ(ended.failed_rank, 1);
  h.StartAll(h.id);
  EXPECT_GE(h.Attempt(h.id).seconds.detect, 0) << "a cause heard late is not a fault of the future";
}

TEST(RankFaultTest, ASymptomWithoutACauseIsTheCause) {
  RunningJob h;
  h.Exited(h.id, 0, {76, 0});
  h.Ended(h.id, 1);
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.Job(h.id).attempts->front().cause_kind, CauseKind::kPeerLost);
  EXPECT_EQ(h.Job(h.id).attempts->front().failed_rank, 0);
}

TEST(RankFaultTest, ARankThatIsEndedAfterItReportedAnErrorIsTheCause) {
  RunningJob h;
  h.Report(h.id, 1, TrainerError{.kind = "data", .message = "train.jsonl:7: no JSON", .step = 12});
  h.Exited(h.id, 0, {76, 0});
  h.Ended(h.id, 1);
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kFailed);
  EXPECT_THAT(h.Job(h.id).reason(), HasSubstr("train.jsonl:7: no JSON"));
}

TEST(RankFaultTest, TheRankThatMadeANanIsTheCauseThoughAnotherReportsFirst) {
  RunningJob h;
  h.Report(h.id, 0,
           TrainerError{.kind = "nonfinite",
                        .message = "not finite is rank 1: loss",
                        .step = 12,
                        .symptom = true});
  EXPECT_TRUE(h.Take<Abort>("n1").empty()) << "the rank itself is waited for";
  h.Report(h.id, 1,
           TrainerError{.kind = "nonfinite", .message = "not finite is rank 1: loss", .step = 12});
  h.Exited(h.id, 0, {79, 0});
  h.Exited(h.id, 1, {79, 0});
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kFailed);
  EXPECT_EQ(h.Job(h.id).attempts->front().failed_rank, 1);
  EXPECT_EQ(h.Job(h.id).attempts->front().cause_kind, CauseKind::kNonFinite);
}

TEST(RankFaultTest, ACauseThatArrivesAfterTheAbortStillCounts) {
  RunningJob h;
  h.Exited(h.id, 0, {76, 0});
  h.Advance(milliseconds(60));
  h.Exited(h.id, 1, {0, 11}, 0.1);
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.Job(h.id).attempts->front().cause, "rank 1 on n2 was killed by SIGSEGV");
}

TEST(RankFaultTest, ALongLogLineIsNotCutInsideACharacter) {
  RunningJob h;
  std::string bar;
  for (int i = 0; i < 500; ++i) bar += "\u2588";  // three bytes each, as progress bars print them
  h.Deliver("n2", RankExited{
                      .job = h.id, .generation = 1, .rank = 1, .end = {{1, 0}}, .log_tail = {bar}});
  h.Report(h.id, 0, TrainerNote{"info", bar});
  const std::string& line = h.Job(h.id).attempts->front().log_tail.at(0);
  EXPECT_GT(line.size(), 900u);
  EXPECT_LT(line.size(), bar.size());
  EXPECT_EQ(line.size() % 3, 0u);
  const std::string& note = h.Job(h.id).attempts->front().notes.at(0);
  EXPECT_EQ((note.size() - std::string("rank 0: ").size()) % 3, 0u);
}

TEST(RankFaultTest, ATrainersReportIsKeptUpToABound) {
  RunningJob h;
  h.Report(h.id, 1,
           TrainerError{.kind = "internal", .message = std::string(150000, 'x'), .step = 3});
  h.Exited(h.id, 1, {1, 0});
  h.Report(h.id, 0, TrainerNote{"info", std::string(150000, 'y')});
  h.QuiesceAll(h.id);
  EXPECT_LT(h.Job(h.id).attempts->front().cause.size(), 3000u);
  EXPECT_LT(h.Timeline().size(), 15000u);
}

TEST(RankFaultTest, TheEarlierOfTwoFailuresIsTheCause) {
  RunningJob h;
  h.Exited(h.id, 0, {1, 0}, 0.010);
  h.Exited(h.id, 1, {3, 0}, 0.200);  // heard later, happened before
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.Job(h.id).attempts->front().failed_rank, 1);
}

TEST(RankFaultTest, BadInputEndsTheJobWithTheTrainersMessage) {
  RunningJob h;
  h.Report(h.id, 0, TrainerError{.kind = "data", .message = "train.jsonl:7: not JSON", .step = 3});
  h.Exited(h.id, 0, {78, 0});
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kFailed);
  EXPECT_THAT(h.Job(h.id).reason(), HasSubstr("train.jsonl:7: not JSON"));
  EXPECT_EQ(h.Take<Release>("n1").size(), 1u);
}

TEST(RankFaultTest, ATrainerThatReportsAnErrorAndHangsIsNotWaitedForLong) {
  RunningJob h;
  h.Report(h.id, 0, TrainerError{.kind = "internal", .message = "assertion", .step = 3});
  h.Advance(milliseconds(1500));
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  h.Advance(seconds(1));
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
  h.QuiesceAll(h.id);
  EXPECT_THAT(h.Job(h.id).attempts->front().cause, HasSubstr("did not exit: assertion"));
}

TEST(RankFaultTest, TheSameFaultAtTheSameStepTwiceEndsTheJobAndSaysSo) {
  RunningJob h;
  h.Exited(h.id, 1, {0, 11});
  h.QuiesceAll(h.id);
  ASSERT_EQ(h.State(h.id), JobState::kRecovering) << h.Timeline();
  h.StartAll(h.id);
  h.TrainFrom(h.id, 11);
  h.Exited(h.id, 1, {0, 11});
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kFailed);
  EXPECT_THAT(h.Job(h.id).reason(),
              StartsWith("the same fault at the same step twice; the last one: rank 1 on n2"));
}

TEST(RankFaultTest, ASignalFromOutsideAtTheSameStepIsAnotherFault) {
  RunningJob h;
  for (int attempt = 0; attempt < 3; ++attempt) {
    ASSERT_FALSE(IsTerminal(h.State(h.id))) << h.Timeline();
    h.Exited(h.id, 1, {0, 9});
    h.QuiesceAll(h.id);
    h.Advance(seconds(2));
    h.StartAll(h.id);
    h.TrainFrom(h.id, 11);
  }
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
}

TEST(RankFaultTest, FaultsWithoutProgressUseUpTheBudget) {
  RunningJob h;
  h.Exited(h.id, 1, {0, 11});
  h.QuiesceAll(h.id);  // progress: steps 1 to 12 were new
  for (int attempt = 0; attempt < 3; ++attempt) {
    ASSERT_EQ(h.State(h.id), JobState::kRecovering) << h.Timeline();
    h.StartAll(h.id);
    h.TrainFrom(h.id, attempt);  // no further than before
    h.Exited(h.id, 1, {0, 11});
    h.QuiesceAll(h.id);
    h.Advance(seconds(2));
  }
  EXPECT_EQ(h.State(h.id), JobState::kFailed);
  EXPECT_THAT(h.Job(h.id).reason(),
              StartsWith("3 attempts in a row ended without progress; the last one: rank 1 on n2"));
}

TEST(RankFaultTest, OutOfMemoryIsTriedOnceMore) {
  RunningJob h;
  for (int attempt = 0; attempt < 2; ++attempt) {
    ASSERT_FALSE(IsTerminal(h.State(h.id))) << h.Timeline();
    h.Deliver("n2", RankExited{.job = h.id,
                               .generation = h.Attempt(h.id).generation,
                               .rank = 1,
                               .end = {.exit = {0, 9}, .out_of_memory = true},
                               .facts = {"oom_kill 1 in its cgroup"}});
    h.QuiesceAll(h.id);
    if (attempt == 0) {
      EXPECT_EQ(h.Job(h.id).attempts->front().card.facts.size(), 1u);
      h.StartAll(h.id);
      h.TrainFrom(h.id, 3);
    }
  }
  EXPECT_EQ(h.State(h.id), JobState::kFailed);
  EXPECT_THAT(h.Job(h.id).reason(), HasSubstr("out of memory twice without progress"));
}

TEST(RankFaultTest, AHungRankIsNamedAndNotKept) {
  RunningJob h;
  RankProgress waits;
  waits.step = 12;
  waits.phase = TrainPhase::kBackward;
  waits.stores = 99;
  waits.process_state = "S";
  waits.collectives = {{"world", 40, 40, 39}};
  RankProgress stuck = waits;
  stuck.rank = 1;
  stuck.process_state = "T";
  stuck.collectives = {{"world", 39, 39, 39}};
  for (int i = 0; i < 200 && h.Attempt(h.id).state == AttemptState::kRunning; ++i) {
    h.Advance(milliseconds(50));
    h.Deliver("n1", Progress{.job = h.id, .generation = 1, .ranks = {waits}});
    h.Deliver("n2", Progress{.job = h.id, .generation = 1, .ranks = {stuck}});
  }
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kHung);
  EXPECT_EQ(h.Attempt(h.id).failed_rank, 1);
  const Abort abort = h.Take<Abort>("n2").at(0);
  EXPECT_EQ(abort.kill_ranks, std::vector<int>{1});
  EXPECT_DOUBLE_EQ(abort.park_seconds, 1);
  EXPECT_TRUE(h.HasEvent(h.id, "hung")) << h.Timeline();
  EXPECT_THAT(h.Attempt(h.id).card.what, HasSubstr("no progress"));
}

TEST(RankFaultTest, StepsOrCheckpointsRefundTheBudget) {
  RunningJob h;
  for (int attempt = 0; attempt < 6; ++attempt) {
    h.Exited(h.id, 1, {0, 9});
    h.QuiesceAll(h.id);
    ASSERT_EQ(h.Job(h.id).record->generation, attempt + 2);
    h.StartAll(h.id);
    h.TrainFrom(h.id, 0);
    h.StepTo(h.id, 20 + attempt);
  }
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  EXPECT_EQ(h.Job(h.id).record->attempts_without_progress, 0);
}

TEST(RankFaultTest, ACommandThatAlwaysFailsRunsAsOftenAsTheBudgetSays) {
  RunningJob h(CommandYaml("bad", "restart: {max_without_progress: 2}\n"));
  for (int attempt = 0; attempt < 2; ++attempt) {
    h.Exited(h.id, 0, {3, 0});
    h.QuiesceAll(h.id);
    if (attempt == 0) h.StartAll(h.id);
  }
  EXPECT_EQ(h.State(h.id), JobState::kFailed);
  EXPECT_EQ(h.Job(h.id).record->generation, 2);
  EXPECT_THAT(h.Job(h.id).reason(), HasSubstr("rank 0 on n1 exited with code 3"));
}

// --- phases that do not succeed ---

TEST(PrepareTest, WhatNoAttemptCanMendEndsTheJob) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.Deliver("n2",
            Prepared{.job = id, .generation = 1, .error = "model path /jobs/model does not exist"});
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
  h.QuiesceAll(id);
  EXPECT_EQ(h.State(id), JobState::kFailed);
  EXPECT_THAT(h.Job(id).reason(), HasSubstr("/jobs/model does not exist"));
}

// A replacement that lacks a mount ended jobs that had run for weeks.
TEST(PrepareTest, ANodeThatCannotRunItEndsNoJobThatHasRun) {
  ControlHarness h;
  for (const char* node : {"n1", "n2", "n3", "n4"}) h.Join(node);
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 5);
  ASSERT_THAT(h.Job(id).record->pending_release, ElementsAre(NodeName{"n1"}, NodeName{"n2"}));
  h.Leave("n2");
  h.Advance(seconds(11));
  h.ParkedOn("n1", id);
  ASSERT_EQ(h.Attempt(id).nodes[1].value, "n3");
  h.Deliver("n3",
            Prepared{.job = id, .generation = 2, .error = "there is no directory /data/model"});
  EXPECT_TRUE(
      h.HasEvent(id, "node_refused", "n3 cannot run it: there is no directory /data/model"));
  h.QuiesceAll(id);
  EXPECT_EQ(h.Attempt(id).generation, 3);
  EXPECT_EQ(h.Attempt(id).nodes[1].value, "n4");
  EXPECT_EQ(h.Job(id).record->attempts_without_progress, 0) << "it is no fault of the job";
  h.RunTo(id, 8);
  EXPECT_EQ(h.State(id), JobState::kRunning);
}

TEST(PrepareTest, ANodeThatCannotRunItIsTriedAgainAfterAPause) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 5);
  h.Exited(id, 1, {0, 11});
  h.QuiesceAll(id);
  h.Deliver("n2",
            Prepared{.job = id, .generation = 2, .error = "there is no directory /data/model"});
  h.QuiesceAll(id);
  EXPECT_EQ(h.State(id), JobState::kRecovering);
  EXPECT_EQ(h.Attempt(id).generation, 2) << "there is no other node";
  EXPECT_THAT(h.Job(id).reason(), HasSubstr("n2 cannot run it: there is no directory"));
  h.Advance(seconds(10));
  EXPECT_EQ(h.Attempt(id).generation, 3);
  h.RunTo(id, 8);
  EXPECT_EQ(h.State(id), JobState::kRunning);
}

TEST(PrepareTest, AReplacementWithAnotherNcclEndsNoJobThatHasRun) {
  ControlHarness h;
  for (const char* node : {"n1", "n2", "n3", "n4"}) h.Join(node);
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 5);
  h.Leave("n2");
  h.Advance(seconds(11));
  h.ParkedOn("n1", id);
  h.Deliver("n1", Prepared{.job = id,
                           .generation = 2,
                           .master_port = 4999,
                           .cuda = CudaStack{"b", "13.0", "13.0", "2.28.9"}});
  h.Deliver("n3",
            Prepared{.job = id, .generation = 2, .cuda = CudaStack{"b", "13.0", "13.0", "2.27.5"}});
  h.QuiesceAll(id);
  EXPECT_EQ(h.Attempt(id).generation, 3);
  EXPECT_EQ(h.Attempt(id).nodes[1].value, "n4");
}

// The pause is over and nothing has changed: the second time it is compared with the gang that
// trained, not with the one that it broke itself.
TEST(PrepareTest, AReplacementWithAnotherNcclEndsNoJobTheSecondTimeEither) {
  ControlHarness h;
  for (const char* node : {"n1", "n2", "n3"}) h.Join(node);
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 5);
  h.Leave("n2");
  h.Advance(seconds(11));
  h.ParkedOn("n1", id);
  double pause = 10;
  for (Generation generation = 2; generation < 6; ++generation, pause *= 2) {
    ASSERT_EQ(h.Attempt(id).generation, generation) << h.Timeline();
    h.Deliver("n1", Prepared{.job = id,
                             .generation = generation,
                             .master_port = 4999,
                             .cuda = CudaStack{"b", "13.0", "13.0", "2.28.9"}});
    h.Deliver("n3", Prepared{.job = id,
                             .generation = generation,
                             .cuda = CudaStack{"b", "13.0", "13.0", "2.27.5"}});
    h.QuiesceAll(id);
    ASSERT_EQ(h.State(id), JobState::kRecovering) << h.Timeline();
    h.Advance(std::chrono::round<milliseconds>(std::chrono::duration<double>(pause - 1)));
    ASSERT_EQ(h.Attempt(id).generation, generation) << "twice as long each time";
    h.Advance(seconds(1));
  }
}

// Its guardian cannot start, its disk is full: with immediate retries it would use up a job's
// attempts within a second.
TEST(PrepareTest, ANodeThatFailsToPrepareAgainAndAgainEndsNoJobThatHasRun) {
  ControlHarness h;
  for (const char* node : {"n1", "n2"}) h.Join(node);
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 5);
  h.Exited(id, 1, {0, 11});
  h.QuiesceAll(id);
  for (int n = 0; n < 12; ++n) {
    const Generation generation = h.Attempt(id).generation;
    h.Deliver("n2", Prepared{.job = id,
                             .generation = generation,
                             .error = "its guardian does not start",
                             .retryable = true});
    h.QuiesceAll(id);
    ASSERT_NE(h.State(id), JobState::kFailed) << h.Timeline();
    ASSERT_TRUE(n > 0 || h.Attempt(id).generation == generation + 1) << "once at once";
    while (h.Attempt(id).generation == generation) h.Advance(seconds(10));
  }
  h.RunTo(id, 8);
  EXPECT_EQ(h.State(id), JobState::kRunning);
}

// They were counted from the attempt before alone, which may never have trained.
TEST(PrepareTest, StepsAreLostOverAnAttemptThatNeverTrained) {
  ControlHarness h;
  for (const char* node : {"n1", "n2"}) h.Join(node);
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 12);
  h.Checkpoint(id, 10);
  h.Manifest(id, h.Directory(id, 10));
  h.StepTo(id, 15);
  h.Exited(id, 1, {0, 11});
  h.QuiesceAll(id);
  const Generation second = h.Attempt(id).generation;
  h.Deliver("n2", Prepared{.job = id,
                           .generation = second,
                           .error = "its guardian does not start",
                           .retryable = true});
  h.QuiesceAll(id);
  while (h.Attempt(id).generation == second) h.Advance(seconds(10));
  h.PrepareAll(id);
  h.StartAll(id);
  h.observations.clear();
  h.TrainFrom(id, 10);
  const auto lost = std::ranges::find_if(h.observations, [](const Observation& one) {
    return std::holds_alternative<LostStepsObserved>(one);
  });
  ASSERT_NE(lost, h.observations.end());
  EXPECT_EQ(std::get<LostStepsObserved>(*lost).steps, 5);
  EXPECT_TRUE(h.HasEvent(id, "recovered", "5 steps to do again")) << h.Timeline();
}

TEST(PrepareTest, NodesThatAreNotPreparedInTimeEndNoJobThatHasRun) {
  ControlHarness h;
  for (const char* node : {"n1", "n2"}) h.Join(node);
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 5);
  h.Exited(id, 1, {0, 11});
  h.QuiesceAll(id);
  for (int n = 0; n < 6; ++n) {
    const Generation generation = h.Attempt(id).generation;
    h.Advance(seconds(31));
    h.QuiesceAll(id);
    ASSERT_NE(h.State(id), JobState::kFailed) << h.Timeline();
    while (h.Attempt(id).generation == generation) h.Advance(seconds(5));
  }
  h.RunTo(id, 8);
  EXPECT_EQ(h.State(id), JobState::kRunning) << h.Timeline();
}

// The data's disk is not mounted there, which only the trainer finds out.
TEST(PrepareTest, BadInputOnAReplacementAloneEndsNoJobThatHasTrained) {
  ControlHarness h;
  for (const char* node : {"n1", "n2", "n3", "n4"}) h.Join(node);
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 5);
  h.Leave("n2");
  h.Advance(seconds(11));
  h.ParkedOn("n1", id);
  ASSERT_EQ(h.Attempt(id).nodes[1].value, "n3");
  h.PrepareAll(id);
  h.StartAll(id);
  h.Report(id, 1, TrainerError{.kind = "data", .message = "there is no /data/rows.jsonl"});
  h.Exited(id, 1, {78, 0});
  h.QuiesceAll(id);
  EXPECT_TRUE(h.HasEvent(id, "node_refused", "n3 cannot run it")) << h.Timeline();
  ASSERT_EQ(h.Attempt(id).generation, 3) << h.Timeline();
  EXPECT_EQ(h.Attempt(id).nodes[1].value, "n4");
}

TEST(PrepareTest, NodesWithDifferentNcclAreNotLaunched) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.Deliver("n1", Prepared{.job = id,
                           .generation = 1,
                           .master_port = 4999,
                           .cuda = CudaStack{"b", "13.0", "13.0", "2.28.9"}});
  EXPECT_EQ(h.Attempt(id).state, AttemptState::kPreparing);
  h.Deliver("n2",
            Prepared{.job = id, .generation = 1, .cuda = CudaStack{"b", "13.0", "13.0", "2.27.5"}});
  EXPECT_TRUE(h.Take<Launch>("n1").empty());
  h.QuiesceAll(id);
  EXPECT_EQ(h.State(id), JobState::kFailed);
  EXPECT_THAT(h.Job(id).reason(), HasSubstr("n2: 2.27.5; n1: 2.28.9"));
}

TEST(PrepareTest, NodesWithOneCudaStackAreLaunched) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.Deliver("n1", Prepared{.job = id,
                           .generation = 1,
                           .master_port = 4999,
                           .cuda = CudaStack{"b", "13.0", "13.0", "2.28.9"}});
  h.Deliver("n2",
            Prepared{.job = id, .generation = 1, .cuda = CudaStack{"b", "13.0", "13.1", "2.28.9"}});
  EXPECT_EQ(h.Take<Launch>("n1").size(), 1u);
  EXPECT_EQ(h.Take<Launch>("n2").size(), 1u);
}

TEST(PrepareTest, ARetryableRefusalIsTriedAgainAndCounted) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.Deliver("n2", Prepared{.job = id, .generation = 1, .error = "port lost", .retryable = true});
  h.QuiesceAll(id);
  EXPECT_EQ(h.Job(id).record->generation, 2);
  EXPECT_EQ(h.Job(id).record->attempts_without_progress, 1);
  h.RunTo(id, 3);
  EXPECT_EQ(h.State(id), JobState::kRunning);
}

// A node whose state disk was full failed every new job, while another one was idle.
TEST(PrepareTest, ANewJobLeavesANodeThatFailsTwiceForAnother) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(
      "name: one\nresources: {nodes: 1, ranks_per_node: 1}\nworkdir: /jobs\ncommand: [./hello]\n");
  for (Generation generation = 1; generation <= 2; ++generation) {
    ASSERT_THAT(h.Attempt(id).nodes, ElementsAre(NodeName{"n1"})) << h.Timeline();
    h.Deliver("n1", Prepared{.job = id,
                             .generation = generation,
                             .error = "no space left on device",
                             .retryable = true});
    h.QuiesceAll(id);
  }
  h.Advance(seconds(1));  // the pause after a second attempt without progress
  EXPECT_THAT(h.Attempt(id).nodes, ElementsAre(NodeName{"n2"})) << h.Timeline();
}

TEST(PrepareTest, AGuardianThatEndsBeforeTheLaunchIsAFaultAtOnce) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.PreparedOn("n1", id);
  h.QuiescedOn("n2", id);  // tells of older generations only
  EXPECT_EQ(h.Attempt(id).state, AttemptState::kPreparing);
  h.QuiescedOn("n1", id);
  EXPECT_EQ(h.Job(id).attempts->front().cause_kind, CauseKind::kGuardianLost);
  h.QuiescedOn("n2", id);
  EXPECT_EQ(h.Attempt(id).generation, 2);
}

TEST(PrepareTest, ANodeThatPreparesAgainIsWaitedForAndItsNewPortIsSent) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.PreparedOn("n1", id);
  h.Leave("n1");
  h.Forget();
  h.Join("n1", {.instance = "second"});  // worker and guardian were killed
  EXPECT_EQ(h.Take<Prepare>("n1").size(), 1u);
  h.PreparedOn("n2", id);
  EXPECT_EQ(h.Attempt(id).state, AttemptState::kPreparing) << "the port that n1 told is gone";
  h.Deliver("n1", Prepared{.job = id, .generation = 1, .master_port = 4999});
  EXPECT_EQ(h.Take<Launch>("n2").at(0).master_port, 4999);
}

TEST(PhaseDeadlineTest, PrepareLaunchFormAndAbortAllEnd) {
  ControllerOptions options;
  options.lease = std::chrono::hours(1);  // silence is not what this is about
  ControlHarness h(options);
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.PreparedOn("n1", id);
  h.Advance(seconds(31));
  EXPECT_EQ(h.Attempt(id).cause_kind, CauseKind::kPrepareTimeout);
  EXPECT_EQ(h.Attempt(id).failed_node.value, "n2");
  h.QuiescedOn("n1", id);
  h.Advance(seconds(31));  // n2 never answers the abort either
  EXPECT_EQ(h.Job(id).record->generation, 1) << "its slot is not free before it has";
  EXPECT_EQ(h.State(id), JobState::kRecovering);
  EXPECT_EQ(h.Node("n2").slots_used, 1);
  h.QuiescedOn("n2", id);
  EXPECT_EQ(h.Job(id).record->generation, 2);
  h.PrepareAll(id);
  h.Started(id, 1);
  h.Advance(seconds(61));
  EXPECT_EQ(h.Attempt(id).cause_kind, CauseKind::kLaunchTimeout);
  EXPECT_EQ(h.Attempt(id).failed_rank, 0);
  h.QuiesceAll(id);
  h.Advance(seconds(1));
  ASSERT_EQ(h.Job(id).record->generation, 3);
  h.StartAll(id);
  h.Report(id, 0, Formed{});
  h.Advance(seconds(601));
  EXPECT_THAT(h.Attempt(id).cause, HasSubstr("1 of 2 ranks found each other"));
}

// --- fencing ---

TEST(FenceTest, MessagesOfAnotherGenerationNodeOrJobChangeNothing) {
  RunningJob h;
  h.Exited(h.id, 1, {0, 9});
  h.QuiesceAll(h.id);
  ASSERT_EQ(h.Job(h.id).record->generation, 2);
  h.StartAll(h.id);
  h.TrainFrom(h.id, 0);
  h.Forget();
  h.observations.clear();
  const JobState state = h.State(h.id);
  for (Generation generation : {1, 3}) {
    h.Deliver("n1", Prepared{.job = h.id, .generation = generation, .error = "no"});
    h.Deliver("n1", RankStarted{.job = h.id, .generation = generation, .rank = 0, .pid = 77});
    h.Deliver(
        "n1",
        RankExited{
            .job = h.id, .generation = generation, .rank = 0, .end = {{1, 0}}, .log_tail = {}});
    h.Deliver("n1", Quiesced{.job = h.id, .generation = generation});
    h.Deliver("n1", TrainerReport{.job = h.id,
                                  .generation = generation,
                                  .rank = 0,
                                  .body = TrainerError{.kind = "data", .message = "x", .step = 0}});
    h.Deliver("n1", Progress{.job = h.id,
                             .generation = generation,
                             .ranks = {RankProgress{.rank = 0, .step = 99}}});
  }
  h.Deliver("n1", RankExited{.job = h.id,
                             .generation = 2,
                             .rank = 1,
                             .end = {{1, 0}},
                             .log_tail = {}});  // rank 1 lives on n2
  h.Deliver("n1", RankExited{.job = h.id,
                             .generation = 2,
                             .rank = 9,
                             .end = {{1, 0}},
                             .log_tail = {}});  // no such rank
  h.Deliver(
      "n1",
      RankExited{
          .job = JobId{"ffffffffff"}, .generation = 2, .rank = 0, .end = {{1, 0}}, .log_tail = {}});
  EXPECT_EQ(h.State(h.id), state);
  EXPECT_EQ(h.Job(h.id).record->step, 1);
  EXPECT_TRUE(h.sends().empty());
  EXPECT_EQ(h.observations.size(), 15u);
  h.Advance(seconds(3));
  EXPECT_EQ(h.State(h.id), state);
}

TEST(FenceTest, MessagesOfAReplacedStreamAreIgnored) {
  ControlHarness h;
  const SessionId old = h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.Join("n1");
  EXPECT_EQ(h.closes.at(0).session, old);
  EXPECT_EQ(h.Take<Prepare>("n1").size(), 2u) << "said again after the reconnect";
  h.DeliverOn(old, Prepared{.job = id, .generation = 1, .error = "no"});
  h.Handle(WorkerStreamClosed{old});
  EXPECT_EQ(h.State(id), JobState::kStarting);
  EXPECT_TRUE(h.Node("n1").connected);
}

}  // namespace
}  // namespace muster
