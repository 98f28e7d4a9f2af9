// Scenarios of jobs that are suspended and resumed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

struct Suspending : RunningJob {
  explicit Suspending(const std::string& yaml = TrainYaml(), double by_seconds = 0)
      : RunningJob(yaml) {
    const Reply reply = Suspend(id, by_seconds);
    EXPECT_TRUE(reply.status.ok()) << reply.status.ToString();
    EXPECT_EQ(std::get<SuspendAccepted>(reply.body).state, JobState::kStopping);
  }
  void ExitAll(ProcessExit exit = {0, 0}) {
    Exited(id, 0, exit);
    Exited(id, 1, exit);
  }
  // Everything that a gang does when it saves its state on request.
  void Save(Step step) {
    Checkpoint(id, step);
    Manifest(id, Directory(id, step));
    ExitAll();
    QuiesceAll(id);
  }
  std::string Reason() { return Job(id).reason(); }
};

std::string WithTimeLimit(std::string yaml) {
  return yaml.replace(yaml.find("nodes: 2,"), 9, "nodes: 2, time_limit: 60s,");
}

TEST(SuspendTest, TheRanksSaveAndTheJobIsSetAside) {
  Suspending h;
  EXPECT_EQ(h.State(h.id), JobState::kStopping);
  EXPECT_EQ(h.Take<Stop>("n1").size(), 1u);
  EXPECT_EQ(h.Take<Stop>("n2").size(), 1u);
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  h.StepTo(h.id, 13);
  h.Save(13);
  EXPECT_EQ(h.State(h.id), JobState::kSuspended) << h.Timeline();
  EXPECT_EQ(h.Reason(), "suspended: maintenance; it will go on at step 13");
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kSuspended);
  EXPECT_EQ(h.Take<Release>("n1").size(), 1u);
  EXPECT_EQ(h.Node("n1").slots_used, 0);
  EXPECT_EQ(h.controller().PendingJobs(), 0);
  h.Advance(seconds(600));
  EXPECT_EQ(h.State(h.id), JobState::kSuspended) << "nobody but a user brings it back";
}

TEST(SuspendTest, AResumedJobGoesOnFromItsNewestCheckpoint) {
  Suspending h;
  h.StepTo(h.id, 13);
  h.Save(13);
  const Reply reply = h.Resume(h.id);
  ASSERT_TRUE(reply.status.ok()) << reply.status.ToString();
  EXPECT_EQ(std::get<ResumeAccepted>(reply.body).state, JobState::kStarting) << "in one commit";
  EXPECT_EQ(h.Attempt(h.id).generation, 2);
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kRequeue);
  h.PrepareAll(h.id);
  const std::vector<Launch> launched = h.Take<Launch>("n1");
  ASSERT_EQ(launched.size(), 1u);
  EXPECT_EQ(launched[0].resume.at(0).step, 13);
  h.StartAll(h.id);
  h.TrainFrom(h.id, 13);
  EXPECT_EQ(h.State(h.id), JobState::kRunning) << h.Timeline();
  EXPECT_EQ(h.Job(h.id).attempts->front().lost_steps, 0);
  h.observations.clear();
  h.FinishAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSucceeded);
  const auto ended = std::ranges::count_if(h.observations, [](const Observation& one) {
    const auto* run = std::get_if<RunEndedObserved>(&one);
    return run != nullptr && run->state == JobState::kSucceeded;
  });
  EXPECT_EQ(ended, 1);
}

TEST(SuspendTest, WhatARunStoodStillUntilItWasPlacedAgainIsNoLackOfProgress) {
  Suspending h;
  h.StepTo(h.id, 13);
  const std::int64_t step_at = h.Job(h.id).record->progress_unix_ms;
  h.Save(13);
  h.Advance(seconds(600));
  EXPECT_EQ(h.Job(h.id).record->progress_unix_ms, step_at);
  ASSERT_TRUE(h.Resume(h.id).status.ok());
  EXPECT_EQ(h.Job(h.id).record->progress_unix_ms, h.now().unix_ms);
}

TEST(SuspendTest, TheCommitRecordIsWaitedForWhileThereIsTime) {
  Suspending h(TrainYaml(), 20);
  h.Checkpoint(h.id, 13);
  h.ExitAll();
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kStopping);
  h.Advance(seconds(10));
  EXPECT_EQ(h.State(h.id), JobState::kStopping);
  h.Advance(seconds(11));
  EXPECT_EQ(h.State(h.id), JobState::kSuspended) << h.Timeline();
  EXPECT_EQ(h.Job(h.id).record->committed_step, 13);
}

TEST(SuspendTest, ACancelDoesNotWaitForTheCommitRecord) {
  Suspending h(TrainYaml(), 20);
  h.Checkpoint(h.id, 13);
  h.ExitAll();
  h.QuiesceAll(h.id);
  ASSERT_EQ(h.State(h.id), JobState::kStopping);
  EXPECT_TRUE(h.Cancel(h.id).status.ok());
  EXPECT_EQ(h.State(h.id), JobState::kCancelled) << h.Timeline();
}

TEST(SuspendTest, RanksThatHaveNotSavedByTheDeadlineAreEndedAndTheLossIsReported) {
  Suspending h(TrainYaml(), 20);
  h.Checkpoint(h.id, 10);
  h.Advance(seconds(19));
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  h.Advance(seconds(2));
  const std::vector<Abort> aborted = h.Take<Abort>("n1");
  ASSERT_EQ(aborted.size(), 1u);
  EXPECT_EQ(aborted[0].grace_seconds, 0);
  EXPECT_EQ(h.State(h.id), JobState::kStopping) << "not before all is proved gone";
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSuspended) << h.Timeline();
  EXPECT_EQ(h.Reason(),
            "suspended: maintenance; it had not stopped in time; it will go on at step 10; 2 steps "
            "after that checkpoint will have to be done again");
}

TEST(SuspendTest, WithoutADeadlineATrainJobIsWaitedForAsLongAsItSaves) {
  Suspending h;
  RankProgress saving;
  saving.step = 13;
  saving.phase = TrainPhase::kCheckpoint;
  for (saving.stores = 1; saving.stores <= 3; ++saving.stores) {
    h.Deliver("n1", Progress{.job = h.id, .generation = 1, .ranks = {saving}});
    h.Advance(seconds(50));
  }
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  h.Advance(seconds(121));
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
}

TEST(SuspendTest, ASecondCallWithLessTimeShortensIt) {
  Suspending h(TrainYaml(), 500);
  EXPECT_TRUE(h.Suspend(h.id, 900).status.ok());
  EXPECT_TRUE(h.Suspend(h.id, 5).status.ok());
  h.Advance(seconds(6));
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
}

TEST(SuspendTest, ATimeThatIsOutOfRangeIsRefused) {
  RunningJob h;
  for (const double by : {-1.0, 4e7, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(h.Suspend(h.id, by).status.code(), StatusCode::kInvalidArgument) << by;
    EXPECT_EQ(h.Drain("n1", by).status.code(), StatusCode::kInvalidArgument) << by;
  }
  EXPECT_THAT(h.Suspend(h.id, -1).status.message(),
              HasSubstr("by_seconds is 0 (no limit) to 31536000, got -1"));
  EXPECT_TRUE(h.Take<Stop>("n1").empty());
}

TEST(SuspendTest, AQueuedJobIsSuspendedAtOnceAndPlacedWhenItIsResumed) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml());
  const Reply reply = h.Suspend(id);
  EXPECT_EQ(std::get<SuspendAccepted>(reply.body).state, JobState::kSuspended);
  EXPECT_EQ(h.Job(id).reason(), "suspended: maintenance; it has not run yet");
  h.Join("n1");
  h.Join("n2");
  EXPECT_EQ(h.State(id), JobState::kSuspended);
  EXPECT_EQ(std::get<SuspendAccepted>(h.Suspend(id).body).state, JobState::kSuspended);
  EXPECT_EQ(std::get<ResumeAccepted>(h.Resume(id).body).state, JobState::kStarting);
  h.RunTo(id, 5);
  EXPECT_EQ(std::get<ResumeAccepted>(h.Resume(id).body).state, JobState::kRunning)
      << "a call whose answer was lost is made again";
}

TEST(SuspendTest, AGangThatIsNotUpYetIsEndedAtOnce) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.PreparedOn("n1", id);
  EXPECT_TRUE(h.Suspend(id, 60).status.ok());
  EXPECT_EQ(h.Take<Abort>("n2").size(), 1u);
  h.QuiesceAll(id);
  EXPECT_EQ(h.State(id), JobState::kSuspended) << h.Timeline();
  EXPECT_EQ(h.Job(id).reason(), "suspended: maintenance; it has finished no step yet");
}

TEST(SuspendTest, ARecoveringJobIsSuspendedAtItsLastCheckpointAndKeepsNoProcess) {
  RunningJob h;
  h.Checkpoint(h.id, 10);
  h.Manifest(h.id, h.Directory(h.id, 10));
  h.Exited(h.id, 0, {0, 11});
  ASSERT_EQ(h.State(h.id), JobState::kRecovering);
  EXPECT_TRUE(h.Suspend(h.id, 60).status.ok());
  h.ParkAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSuspended) << h.Timeline();
  EXPECT_THAT(h.Job(h.id).reason(), HasSubstr("2 steps after that checkpoint"));
  EXPECT_EQ(h.Attempt(h.id).generation, 1);
  EXPECT_EQ(h.Node("n2").slots_used, 1) << "what is parked there ends by its release";
  EXPECT_EQ(h.Take<Release>("n2").size(), 1u);
  h.Deliver("n2", Released{h.id});
  EXPECT_EQ(h.Node("n2").slots_used, 0);
}

TEST(SuspendTest, AFaultOnTheWayIsNotRecovered) {
  Suspending h(TrainYaml(), 60);
  h.Exited(h.id, 0, {0, 11});
  h.Report(h.id, 1, TrainerError{.kind = "peer_lost", .message = "rank 0 is gone"});
  h.Advance(seconds(1));
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSuspended) << h.Timeline();
  EXPECT_EQ(h.Reason(),
            "suspended: maintenance; no checkpoint was committed: 12 steps will have to be done "
            "again");
}

TEST(SuspendTest, ANodeThatIsLostOnTheWayDelaysNoOtherNode) {
  Suspending h(TrainYaml(), 600);
  h.Leave("n2");
  h.Advance(seconds(11));
  h.QuiescedOn("n1", h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSuspended) << h.Timeline();
}

TEST(SuspendTest, AJobThatDoesItsLastStepOnTheWayHasSucceeded) {
  Suspending h;
  h.Report(h.id, 0, Finished{100, "/jobs/out/model"});
  h.FinishAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSucceeded) << h.Timeline();
  EXPECT_EQ(h.Resume(h.id).status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(h.Suspend(h.id).status.message(), HasSubstr("has already succeeded"));
}

TEST(SuspendTest, AJobThatHasFinishedAlreadyEndsAsSucceeded) {
  RunningJob h;
  h.Exited(h.id, 0, {0, 0});
  h.Exited(h.id, 1, {0, 0});
  EXPECT_TRUE(h.Suspend(h.id).status.ok());
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSucceeded) << h.Timeline();
}

TEST(SuspendTest, ACommandThatEndsWellBecauseItWasAskedToIsSuspended) {
  Suspending h(CommandYaml(), 60);
  EXPECT_EQ(h.Take<Stop>("n1").size(), 1u);
  h.Deliver("n1",
            RankExited{.job = h.id, .generation = 1, .rank = 0, .end = {.asked_to_stop = true}});
  h.Deliver("n2", RankExited{.job = h.id,
                             .generation = 1,
                             .rank = 1,
                             .end = {.exit = {0, 15}, .asked_to_stop = true}});
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSuspended) << h.Timeline();
  EXPECT_EQ(h.Reason(), "suspended: maintenance; its command starts from the beginning");
}

TEST(SuspendTest, ACommandThatHadEndedBeforeItWasAskedToHasSucceeded) {
  Suspending h(CommandYaml(), 60);
  h.ExitAll();
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSucceeded) << h.Timeline();
}

TEST(SuspendTest, ACommandThatDoesNotObeyIsEndedAtItsDeadline) {
  Suspending h(CommandYaml(), 60);
  h.Advance(seconds(61));
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSuspended);
}

TEST(SuspendTest, ACancelWinsOnTheWayAndAfterIt) {
  {
    Suspending h;
    ASSERT_TRUE(h.Cancel(h.id).status.ok());
    EXPECT_EQ(h.Take<Abort>("n1").size(), 1u) << "what is cancelled need not save";
    EXPECT_EQ(h.Suspend(h.id).status.code(), StatusCode::kFailedPrecondition);
    h.QuiesceAll(h.id);
    EXPECT_EQ(h.State(h.id), JobState::kCancelled) << h.Timeline();
  }
  Suspending h;
  h.Save(13);
  ASSERT_EQ(h.State(h.id), JobState::kSuspended);
  ASSERT_TRUE(h.Cancel(h.id).status.ok());
  EXPECT_EQ(h.State(h.id), JobState::kCancelled);
  EXPECT_EQ(h.Resume(h.id).status.code(), StatusCode::kFailedPrecondition);
}

TEST(SuspendTest, BadCallsAreRefusedWithWhatToDo) {
  Suspending h;
  EXPECT_EQ(h.Suspend(JobId{"nobody"}).status.code(), StatusCode::kNotFound);
  EXPECT_EQ(h.Resume(JobId{"nobody"}).status.code(), StatusCode::kNotFound);
  EXPECT_EQ(h.Suspend(h.id, -1).status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(h.Resume(h.id).status.message(),
              HasSubstr("muster suspend " + h.id.value + " --wait"));
}

TEST(SuspendTest, ARestartInBetweenSendsTheStopAgainAndKeepsTheDeadline) {
  Suspending h(TrainYaml(), 60);
  const HostedGeneration n1 = h.Hosted("n1", h.id, AttemptState::kRunning);
  const HostedGeneration n2 = h.Hosted("n2", h.id, AttemptState::kRunning);
  h.Advance(seconds(50));
  h.Restart();
  h.Join("n1", {.hosted = {n1}});
  h.Join("n2", {.hosted = {n2}});
  EXPECT_EQ(h.Take<Stop>("n2").size(), 1u);
  h.Advance(seconds(9));
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  h.Advance(seconds(2));
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSuspended) << h.Timeline();
}

TEST(SuspendTest, ARestartWhileTheGangIsBeingEndedLosesNothing) {
  Suspending h(TrainYaml(), 60);
  h.Checkpoint(h.id, 13);
  h.ExitAll();
  h.QuiescedOn("n1", h.id);
  h.Restart();
  HostedGeneration n1 = h.Hosted("n1", h.id, AttemptState::kRunning);
  HostedGeneration n2 = h.Hosted("n2", h.id, AttemptState::kRunning);
  n1.quiesced = n2.quiesced = true;
  h.Join("n1", {.hosted = {n1}});
  h.Join("n2", {.hosted = {n2}});
  EXPECT_EQ(h.Take<CheckpointCommitted>("n1").size(), 1u);
  h.Manifest(h.id, h.Directory(h.id, 13));
  EXPECT_EQ(h.State(h.id), JobState::kSuspended) << h.Timeline();
  EXPECT_THAT(h.Reason(), HasSubstr("it will go on at step 13"));
}

TEST(SuspendTest, ASuspendedJobSurvivesARestartAndItsGuardiansAreReleased) {
  Suspending h;
  h.Save(13);
  HostedGeneration n1 = h.Hosted("n1", h.id, AttemptState::kRunning);
  n1.quiesced = true;
  h.Restart();
  h.Join("n1", {.hosted = {n1}});
  h.Join("n2");
  EXPECT_EQ(h.State(h.id), JobState::kSuspended) << h.Timeline();
  EXPECT_EQ(h.Take<Release>("n1").size(), 1u);
  h.Deliver("n1", Released{h.id});
  EXPECT_TRUE(h.Job(h.id).record->pending_release.empty());
  EXPECT_EQ(std::get<ResumeAccepted>(h.Resume(h.id).body).state, JobState::kStarting)
      << h.Timeline();
}

TEST(SuspendTest, TheOutputDirectoryStaysItsOwn) {
  Suspending h;
  h.Save(13);
  EXPECT_EQ(h.SubmitRaw(TrainYaml()).status.code(), StatusCode::kAlreadyExists);
}

TEST(SuspendTest, TheTimeThatItIsSuspendedIsNoTimeOfItsTimeLimit) {
  Suspending h(WithTimeLimit(TrainYaml()));
  h.Save(13);
  h.Advance(seconds(1000));
  ASSERT_TRUE(h.Resume(h.id).status.ok());
  h.StartAll(h.id);
  h.TrainFrom(h.id, 13);
  h.Advance(seconds(50));
  h.Restart();
  const HostedGeneration n1 = h.Hosted("n1", h.id, AttemptState::kRunning);
  const HostedGeneration n2 = h.Hosted("n2", h.id, AttemptState::kRunning);
  h.Join("n1", {.hosted = {n1}});
  h.Join("n2", {.hosted = {n2}});
  h.Advance(seconds(5));
  EXPECT_EQ(h.State(h.id), JobState::kRunning) << h.Timeline();
  h.Advance(seconds(10));
  EXPECT_EQ(h.State(h.id), JobState::kStopping) << h.Timeline();
}

TEST(SuspendTest, AnAttemptThatWasSuspendedIsNotCountedAsAFailure) {
  Suspending h;
  h.Save(13);
  EXPECT_EQ(h.Job(h.id).record->attempts_without_progress, 0);
  EXPECT_EQ(h.Job(h.id).record->best_step, 12);
}

TEST(CheckpointSecondsTest, IsTheTimeOfACheckpointFromTheStepBeforeIt) {
  RunningJob h;
  EXPECT_EQ(h.Job(h.id).record->checkpoint_seconds, 0);
  h.Advance(seconds(1));
  h.StepTo(h.id, 19);
  h.Advance(seconds(1));
  h.StepTo(h.id, 20);
  h.Advance(seconds(3));
  h.Checkpoint(h.id, 20);
  EXPECT_DOUBLE_EQ(h.Job(h.id).record->checkpoint_seconds, 4);
  h.Advance(seconds(1));
  h.StepTo(h.id, 29);
  h.Advance(seconds(2));
  h.Checkpoint(h.id, 30);
  EXPECT_NEAR(h.Job(h.id).record->checkpoint_seconds, 0.7 * 4 + 0.3 * 2, 1e-9)
      << "little by little";
  h.StepTo(h.id, 39);
  h.Advance(seconds(9));
  h.Checkpoint(h.id, 40);
  EXPECT_DOUBLE_EQ(h.Job(h.id).record->checkpoint_seconds, 9) << "at once";
}

}  // namespace
}  // namespace muster
