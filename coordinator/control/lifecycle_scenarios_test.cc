// Scenarios of a job's normal life: submission, queue, placement, launch, end, cancel, limits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/job_spec/parse.h"
#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

TEST(SubmitTest, SubmissionAndPlacementAreOneCommit) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  h.Submit(TrainYaml());
  const Effects& effects = h.last();
  ASSERT_EQ(effects.replies.size(), 1u);
  EXPECT_EQ(std::get<SubmitAccepted>(effects.replies[0].body).state, JobState::kStarting);
  EXPECT_EQ(effects.sends.size(), 2u);  // Prepare to both, released by the same commit
  EXPECT_FALSE(effects.store.empty());
}

TEST(SubmitTest, SameKeyAndFileGivesTheSameJob) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml(), "k1");
  const Reply again = h.SubmitRaw(TrainYaml(), "k1");
  ASSERT_TRUE(again.status.ok());
  EXPECT_EQ(std::get<SubmitAccepted>(again.body).id, id);
  EXPECT_TRUE(std::get<SubmitAccepted>(again.body).existed);
  EXPECT_EQ(h.controller().Jobs().size(), 1u);
}

// Another version took it.
TEST(SubmitTest, SameKeyAndFileGivesTheSameJobWhereTheFileIsRefusedByNow) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml(), "k1");
  h.Handle(SubmitRequested{.request = 77,
                           .spec_yaml = TrainYaml(),
                           .key = "k1",
                           .new_id = JobId{"0123456789"},
                           .spec = InvalidArgument("no more")});
  ASSERT_TRUE(h.LastReply().status.ok());
  EXPECT_EQ(std::get<SubmitAccepted>(h.LastReply().body).id, id);
  h.Handle(SubmitRequested{.request = 78,
                           .spec_yaml = TrainYaml(),
                           .key = "k2",
                           .new_id = JobId{"0123456789"},
                           .spec = InvalidArgument("no more")});
  EXPECT_EQ(h.LastReply().status.message(), "no more");
}

TEST(SubmitTest, SameKeyWithAnotherFileIsAConflict) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml(), "k1");
  const Reply again = h.SubmitRaw(TrainYaml("other"), "k1");
  EXPECT_EQ(again.status.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(again.status.message(), HasSubstr(id.value));
}

TEST(SubmitTest, KeysSurviveARestart) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml(), "k1");
  h.Restart();
  EXPECT_EQ(std::get<SubmitAccepted>(h.SubmitRaw(TrainYaml(), "k1").body).id, id);
}

TEST(SubmitTest, BadFileIsRefusedWithTheParsersMessage) {
  ControlHarness h;
  const Reply reply = h.SubmitRaw(TrainYaml("x", "unheard_of: 1\n"));
  EXPECT_EQ(reply.status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(reply.status.message(), HasSubstr("unheard_of"));
  EXPECT_TRUE(h.controller().Jobs().empty());
  EXPECT_TRUE(h.LastWroteNothing());
}

TEST(SubmitTest, OutputDirectoryOfALiveJobIsRefusedUntilThatJobIsOver) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml());
  const Reply reply = h.SubmitRaw(TrainYaml());
  EXPECT_EQ(reply.status.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(reply.status.message(), HasSubstr("/jobs/out-tiny"));
  h.Cancel(id);
  EXPECT_TRUE(h.SubmitRaw(TrainYaml()).status.ok());
}

TEST(SubmitTest, ARefusalNamesNoJobThatItsSubmitterMayNotSee) {
  ControlHarness h;
  ASSERT_EQ(h.ApplyQueues("queues: {default: {}, nlp: {}, vision: {}}\n", 0).status, OkStatus());
  ASSERT_EQ(h.ApplyUsers("users: {ada: , bob: }\nroles:\n"
                         "  - {role: submitter, queues: [vision], users: [ada]}\n"
                         "  - {role: submitter, queues: [nlp], users: [bob]}\n")
                .status,
            OkStatus());
  h.SubmitAs("ada");
  const JobId id = h.Submit(TrainYaml("tiny", "queue: vision\n"));
  const std::string same = TrainYaml("tiny", "queue: nlp\n");
  EXPECT_THAT(h.SubmitRaw(same).status.message(), HasSubstr(id.value)) << "her own";
  h.SubmitAs("bob");
  const Status hidden = h.SubmitRaw(same).status;
  EXPECT_EQ(hidden.code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(hidden.message(),
            "another job writes to /jobs/out-tiny; choose another output directory");
  const auto sees_nothing = [](const JobRecord&) { return false; };
  EXPECT_EQ(
      h.controller().AskWhy(*ParseJobSpec(same), "bob", h.now(), sees_nothing).status().message(),
      hidden.message());
}

TEST(QueueTest, AJobWaitsWithItsReasonAndStartsWhenNodesCome) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml());
  EXPECT_EQ(h.State(id), JobState::kQueued);
  EXPECT_THAT(h.Job(id).reason(), HasSubstr("no node is ready"));
  h.Join("n1");
  EXPECT_THAT(h.Job(id).reason(), HasSubstr("1 ready node has room"));
  EXPECT_EQ(h.controller().PendingJobs(), 1);
  h.Join("n2");
  EXPECT_EQ(h.State(id), JobState::kStarting);
  EXPECT_EQ(h.Job(id).reason(), "");
  EXPECT_EQ(h.controller().PendingJobs(), 0);
}

TEST(QueueTest, TheNextJobStartsWhenSlotsAreFree) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId first = h.Submit(TrainYaml("first"));
  const JobId second = h.Submit(TrainYaml("second"));
  EXPECT_EQ(h.State(second), JobState::kQueued);
  h.RunTo(first, 5);
  h.FinishAll(first);
  EXPECT_EQ(h.State(first), JobState::kSucceeded);
  EXPECT_EQ(h.State(second), JobState::kStarting);
}

TEST(QueueTest, TwoJobsShareNodesThatHaveRoom) {
  ControlHarness h;
  h.Join("n1", {.slots = 2});
  h.Join("n2", {.slots = 2});
  const JobId first = h.Submit(TrainYaml("first"));
  const JobId second = h.Submit(TrainYaml("second"));
  EXPECT_EQ(h.State(first), JobState::kStarting);
  EXPECT_EQ(h.State(second), JobState::kStarting);
  EXPECT_EQ(h.Node("n1").slots_used, 2);
}

TEST(AttemptTest, PrepareAndLaunchCarryWhatTheWorkersNeed) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  const Prepare first = h.Take<Prepare>("n1").at(0);
  EXPECT_TRUE(first.hosts_master);
  EXPECT_EQ(first.master_bind_address, "127.0.0.1");
  EXPECT_EQ(first.output_dir, "/jobs/out-tiny");
  EXPECT_EQ(first.ranks.at(0).rank, 0);
  EXPECT_FALSE(h.Take<Prepare>("n2").at(0).hosts_master);
  h.PreparedOn("n2", id);
  EXPECT_TRUE(h.Take<Launch>("n2").empty()) << "launched before every node was prepared";
  h.PreparedOn("n1", id);
  const Launch launch = h.Take<Launch>("n2").at(0);
  EXPECT_EQ(launch.master_address, "127.0.0.1");
  EXPECT_EQ(launch.master_port, 4001);
  EXPECT_EQ(launch.world_size, 2);
  EXPECT_EQ(launch.node_rank, 1);
  EXPECT_EQ(launch.node_count, 2);
  EXPECT_EQ(launch.restart_count, 0);
  EXPECT_EQ(launch.max_restarts, 2) << "of three attempts";
  EXPECT_EQ(h.Attempt(id).state, AttemptState::kLaunching);
}

// The loss of step 1 was dropped: curves began at 0, and the first loss was that of step 2.
TEST(AttemptTest, TheLossOfTheFirstStepIsReportedAfterItsEnd) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.StartAll(id);
  h.TrainFrom(id, 0);
  EXPECT_EQ(h.Job(id).record->step, 1);
  h.StepTo(id, 1, 6.5);
  EXPECT_DOUBLE_EQ(h.Job(id).record->loss, 6.5);
  EXPECT_DOUBLE_EQ(h.Job(id).record->loss_at_start, 6.5);
}

// Its page shows the step that it resumes from before it has a loss of its own.
TEST(AttemptTest, AProcessThatResumesBringsNoLossOfZero) {
  RunningJob h;
  h.StepTo(h.id, 20, 1.5);
  h.Exited(h.id, 1, {.signal = 9});
  h.QuiesceAll(h.id);
  h.Advance(seconds(11));
  h.StartAll(h.id);
  const AttemptRecord& attempt = h.Attempt(h.id);
  ASSERT_EQ(attempt.generation, 2);
  RankProgress page;
  page.step = 21;
  page.max_steps = 100;
  h.Deliver(attempt.ranks[0].node.value,
            Progress{.job = h.id, .generation = attempt.generation, .ranks = {page}});
  EXPECT_EQ(h.Job(h.id).record->loss, 1.5);
  h.TrainFrom(h.id, 21);
  h.StepTo(h.id, 22, 1.25);
  EXPECT_EQ(h.Job(h.id).record->loss, 1.25);
}

TEST(AttemptTest, HappyPathOfATrainJob) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.StartAll(id);
  EXPECT_EQ(h.Attempt(id).state, AttemptState::kRunning);
  EXPECT_EQ(h.State(id), JobState::kStarting);
  h.Advance(seconds(1));
  h.ReportAll(id, Formed{});
  h.Advance(seconds(2));
  h.ReportAll(id, Resumed{.step = 0});
  h.Advance(milliseconds(500));
  h.ReportAll(id, FirstStep{1});
  EXPECT_EQ(h.State(id), JobState::kRunning);
  EXPECT_DOUBLE_EQ(h.Attempt(id).seconds.reform, 1);
  EXPECT_DOUBLE_EQ(h.Attempt(id).seconds.load, 2);
  EXPECT_DOUBLE_EQ(h.Attempt(id).seconds.first_step, 0.5);
  EXPECT_LT(h.Attempt(id).seconds.detect, 0);
  h.StepTo(id, 40, 1.5);
  EXPECT_EQ(h.Job(id).record->step, 40);
  EXPECT_NEAR(h.Job(id).eta_seconds, 6.0, 0.01);
  EXPECT_DOUBLE_EQ(h.Job(id).record->loss, 1.5);
  h.Report(id, 0, Finished{100, "/jobs/out-tiny/model"});
  h.Exited(id, 0, {0, 0});
  EXPECT_EQ(h.State(id), JobState::kRunning);
  h.Exited(id, 1, {0, 0});
  EXPECT_EQ(h.Attempt(id).state, AttemptState::kAborting);
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
  h.QuiesceAll(id);
  EXPECT_EQ(h.State(id), JobState::kSucceeded);
  EXPECT_EQ(h.Attempt(id).cause_kind, CauseKind::kFinished);
  EXPECT_EQ(h.Take<Release>("n1").size(), 1u);
  EXPECT_EQ(h.Take<Release>("n2").size(), 1u);
  EXPECT_EQ(h.Job(id).record->pending_release.size(), 2u);
  h.Deliver("n1", Released{id});
  h.Deliver("n2", Released{id});
  EXPECT_TRUE(h.Job(id).record->pending_release.empty());
  EXPECT_EQ(h.Node("n1").slots_used, 0);
  EXPECT_TRUE(h.HasEvent(id, "finished", "/jobs/out-tiny/model"));
}

TEST(AttemptTest, ARunThatRecoversHasNoPaceAndNoEnd) {
  RunningJob h;
  h.StepTo(h.id, 40);
  EXPECT_GT(h.Job(h.id).tokens_per_second, 0);
  EXPECT_GT(h.Job(h.id).eta_seconds, 0);
  h.Exited(h.id, 1, {0, 9}, 0.01);
  ASSERT_EQ(h.State(h.id), JobState::kRecovering);
  EXPECT_EQ(h.Job(h.id).tokens_per_second, 0);
  EXPECT_LT(h.Job(h.id).eta_seconds, 0);
}

TEST(AttemptTest, HappyPathOfACommandJob) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(CommandYaml());
  h.StartAll(id);
  EXPECT_EQ(h.State(id), JobState::kRunning);
  h.FinishAll(id);
  EXPECT_EQ(h.State(id), JobState::kSucceeded);
}

int AttemptsStored(const Effects& effects) {
  return static_cast<int>(std::count_if(
      effects.store.begin(), effects.store.end(),
      [](const auto& operation) { return std::holds_alternative<PutAttempt>(operation); }));
}

TEST(AttemptTest, RanksThatEndTogetherDoNotStoreTheWholeAttemptEachTime) {
  ControlHarness h;
  h.Join("n1", {.slots = 8});
  h.Join("n2", {.slots = 8});
  std::string yaml = CommandYaml();
  const std::string old = "ranks_per_node: 1";
  const JobId id = h.Submit(yaml.replace(yaml.find(old), old.size(), "ranks_per_node: 8"));
  h.StartAll(id);
  int stored = 0;
  for (int rank = 0; rank < 15; ++rank) {
    h.Exited(id, rank, {0, 0});
    stored += AttemptsStored(h.last());
  }
  EXPECT_EQ(stored, 0);
  h.Advance(seconds(1));
  EXPECT_EQ(h.stored().attempts.back().ranks[14].state, RankState::kExited) << "it is late only";
  h.Exited(id, 15, {0, 0});
  EXPECT_EQ(AttemptsStored(h.last()), 1) << "with the end of the attempt, at once";
  h.QuiesceAll(id);
  EXPECT_EQ(h.State(id), JobState::kSucceeded);
}

TEST(AttemptTest, FailuresThatAnAbortBringsDoNotStoreTheCauseAgain) {
  ControlHarness h;
  h.Join("n1", {.slots = 8});
  const JobId id = h.Submit(
      "name: eight\nresources: {nodes: 1, ranks_per_node: 8}\n"
      "workdir: /jobs\ncommand: [run]\n");
  h.StartAll(id);
  h.Exited(id, 3, {0, 9});
  const std::string cause = h.Attempt(id).cause;
  h.Advance(milliseconds(10));
  int stored = 0;
  for (int rank : {0, 1, 2, 4, 5, 6, 7}) {
    h.Exited(id, rank, {1, 0});
    stored += AttemptsStored(h.last());
  }
  EXPECT_EQ(stored, 0);
  EXPECT_EQ(h.Attempt(id).cause, cause);
}

TEST(AttemptTest, AnExitThatWasNotStoredBeforeTheCoordinatorDiedComesBackWithTheHello) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(CommandYaml());
  h.StartAll(id);
  HostedGeneration n1 = h.Hosted("n1", id, AttemptState::kRunning);
  const HostedGeneration n2 = h.Hosted("n2", id, AttemptState::kRunning);
  h.Exited(id, 0, {0, 0});
  ASSERT_NE(h.stored().attempts.back().ranks[0].state, RankState::kExited);
  h.Restart();
  n1.exited.push_back({.job = id, .generation = 1, .rank = 0});
  h.Join("n1", {.hosted = {n1}});
  h.Join("n2", {.hosted = {n2}});
  EXPECT_EQ(h.Attempt(id).ranks[0].state, RankState::kExited);
  h.Exited(id, 1, {0, 0});
  h.QuiesceAll(id);
  EXPECT_EQ(h.State(id), JobState::kSucceeded) << h.Timeline();
  EXPECT_EQ(h.Attempt(id).generation, 1) << "the exit of rank 0 was lost";
}

TEST(AttemptTest, ACommandThatEndsBeforeItsPeerStartsIsNoFault) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(CommandYaml());
  h.PrepareAll(id);
  h.Started(id, 0);
  h.Exited(id, 0, {0, 0});
  h.Started(id, 1);
  h.Exited(id, 1, {0, 0});
  h.QuiesceAll(id);
  EXPECT_EQ(h.State(id), JobState::kSucceeded);
  EXPECT_EQ(h.Job(id).record->restarts, 0);
}

TEST(AttemptTest, QuiescedMayComeBeforeItIsAskedFor) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(CommandYaml());
  h.StartAll(id);
  h.Exited(id, 0, {0, 0});
  h.QuiescedOn("n1", id);
  h.Exited(id, 1, {0, 0});
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  EXPECT_EQ(h.Take<Abort>("n2").size(), 1u);
  h.QuiescedOn("n2", id);
  EXPECT_EQ(h.State(id), JobState::kSucceeded);
}

TEST(AttemptTest, LoopbackOfAnotherHostEndsTheJobWithTheReason) {
  ControlHarness h;
  h.Join("n1", {.host_id = "a"});
  h.Join("n2", {.host_id = "b"});
  const JobId id = h.Submit(TrainYaml());
  EXPECT_EQ(h.State(id), JobState::kFailed);
  EXPECT_THAT(h.Job(id).reason(), HasSubstr("loopback"));
  EXPECT_TRUE(h.Take<Prepare>("n1").empty());
  EXPECT_EQ(h.Attempt(id).cause_kind, CauseKind::kBadAddress);
}

TEST(TimeLimitTest, AJobOverItsLimitIsStoppedAndFails) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(
      "name: tiny\nresources: {nodes: 2, ranks_per_node: 1, time_limit: 60s}\nworkdir: /jobs\n"
      "command: [./hello]\n");
  h.StartAll(id);
  for (int i = 0; i < 13; ++i) {
    h.Advance(seconds(5));
    h.Deliver("n1", Heartbeat{});
    h.Deliver("n2", Heartbeat{});
  }
  EXPECT_EQ(h.State(id), JobState::kStopping);
  EXPECT_DOUBLE_EQ(h.Take<Abort>("n1").at(0).grace_seconds, 5);
  h.observations.clear();
  h.QuiesceAll(id);
  EXPECT_EQ(h.State(id), JobState::kFailed);
  EXPECT_THAT(h.Job(id).reason(), HasSubstr("time limit"));
  EXPECT_EQ(h.Attempt(id).cause_kind, CauseKind::kTimeLimit);
  ASSERT_EQ(h.observations.size(), 1u);
  EXPECT_TRUE(std::get<RunEndedObserved>(h.observations[0]).out_of_time)
      << "it has not failed else";
}

// --- cancel, in every phase ---

TEST(CancelTest, WhileQueued) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml());
  const Reply reply = h.Cancel(id);
  EXPECT_EQ(std::get<CancelAccepted>(reply.body).state, JobState::kCancelled);
  EXPECT_EQ(h.State(id), JobState::kCancelled);
}

TEST(CancelTest, WhilePreparing) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.Cancel(id);
  EXPECT_EQ(h.State(id), JobState::kStopping);
  h.PreparedOn("n1", id);  // crossed the Abort on its way
  EXPECT_TRUE(h.Take<Launch>("n1").empty());
  h.QuiesceAll(id);
  EXPECT_EQ(h.State(id), JobState::kCancelled);
  for (const RankRecord& rank : h.Attempt(id).ranks)
    EXPECT_EQ(rank.state, RankState::kPrepared) << "a rank that never started is not stopping";
}

TEST(CancelTest, WhileLaunching) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.PrepareAll(id);
  h.Started(id, 0);
  h.Cancel(id);
  h.Started(id, 1);
  EXPECT_EQ(h.Attempt(id).ranks[1].state, RankState::kStopping) << "it started beside the abort";
  h.Exited(id, 0, {0, 15});
  h.QuiesceAll(id);
  EXPECT_EQ(h.Attempt(id).ranks[1].state, RankState::kExited);
  EXPECT_EQ(h.State(id), JobState::kCancelled);
  EXPECT_EQ(h.Job(id).record->restarts, 0);
}

TEST(CancelTest, WhileRunningWithGraceAndIdempotent) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 7);
  h.Cancel(id);
  EXPECT_DOUBLE_EQ(h.Take<Abort>("n1").at(0).grace_seconds, 5);
  EXPECT_TRUE(h.Cancel(id).status.ok());
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  h.Exited(id, 0, {1, 0});
  h.QuiesceAll(id);
  EXPECT_EQ(h.State(id), JobState::kCancelled);
  EXPECT_EQ(h.Attempt(id).cause_kind, CauseKind::kCancelled);
  EXPECT_TRUE(h.Cancel(id).status.ok()) << "a repeated cancel is the same cancel";
  EXPECT_EQ(h.Take<Release>("n1").size(), 1u);
}

TEST(CancelTest, WinsOverRecovery) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 7);
  h.Exited(id, 1, {0, 9});
  EXPECT_EQ(h.State(id), JobState::kRecovering);
  h.Cancel(id);
  h.QuiesceAll(id);
  EXPECT_EQ(h.State(id), JobState::kCancelled);
  EXPECT_EQ(h.Job(id).record->generation, 1);
}

TEST(CancelTest, WhileBackingOff) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  for (int i = 0; i < 2; ++i) {
    h.StartAll(id);
    h.Exited(id, 0, {1, 0});
    h.QuiesceAll(id);
  }
  EXPECT_TRUE(h.HasEvent(id, "backoff"));
  h.Cancel(id);
  EXPECT_EQ(h.State(id), JobState::kCancelled);
  h.Advance(seconds(5));
  EXPECT_EQ(h.Job(id).record->generation, 2);
}

TEST(CancelTest, SurvivesARestart) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 7);
  h.Cancel(id);
  h.Restart();
  EXPECT_EQ(h.State(id), JobState::kStopping);
  h.Join("n1", {.hosted = {h.Hosted("n1", id, AttemptState::kRunning)}});
  EXPECT_DOUBLE_EQ(h.Take<Abort>("n1").at(0).grace_seconds, 5);
  HostedGeneration gone = h.Hosted("n2", id, AttemptState::kRunning);
  gone.quiesced = true;
  h.Join("n2", {.hosted = {gone}});
  h.QuiescedOn("n1", id);
  EXPECT_EQ(h.State(id), JobState::kCancelled);
}

TEST(CancelTest, AFinishedJobCannotBeCancelled) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(CommandYaml());
  h.StartAll(id);
  h.FinishAll(id);
  EXPECT_EQ(h.Cancel(id).status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(h.Cancel(JobId{"nobody"}).status.code(), StatusCode::kNotFound);
}

// --- queries ---

TEST(QueryTest, JobsAreFoundByIdPrefixAndNewestName) {
  ControlHarness h;
  const JobId first = h.Submit(TrainYaml("a"));
  h.Cancel(first);
  const JobId second = h.Submit(TrainYaml("a"));
  const JobId third = h.Submit(TrainYaml("b"));
  EXPECT_EQ(h.controller().FindJob(first.value).value().record->id, first);
  EXPECT_EQ(h.controller().FindJob("a").value().record->id, second);
  EXPECT_EQ(h.controller().FindJob(third.value.substr(0, 6)).value().record->id, third);
  EXPECT_EQ(h.controller().FindJob("0").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(h.controller().FindJob("zzz").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(h.controller().FindJob("").status().code(), StatusCode::kInvalidArgument);
}

TEST(QueryTest, LogsAreLocatedByRankAndGeneration) {
  ControlHarness h;
  const SessionId session = h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 5);
  const LogLocation location =
      h.controller().LocateLog(*h.controller().FindJob("tiny"), 0, 0).value();
  EXPECT_EQ(location.node.value, "n1");
  EXPECT_EQ(location.session, session);
  EXPECT_EQ(location.generation, 1);
  EXPECT_FALSE(location.final);
  EXPECT_EQ(h.controller().LocateLog(*h.controller().FindJob("tiny"), 7, 0).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(h.controller().LocateLog(*h.controller().FindJob("tiny"), 0, 9).status().code(),
            StatusCode::kNotFound);
  h.Leave("n1");
  EXPECT_EQ(h.controller().LocateLog(*h.controller().FindJob("tiny"), 0, 0).status().code(),
            StatusCode::kUnavailable);
}

TEST(QueryTest, EventsInMemoryAreBounded) {
  ControllerOptions options;
  options.max_events = 5;
  ControlHarness h(options);
  for (int i = 0; i < 10; ++i) h.Submit(TrainYaml("j" + std::to_string(i)));
  EXPECT_EQ(h.controller().Events().size(), 5u);
  EXPECT_GE(h.stored().events.size(), 20u);
}

TEST(QueueTest, AReasonToWaitThatChangesIsShownAndNotStoredAgain) {
  ControlHarness h;
  const JobId id = h.Submit(CommandYaml());
  const std::string before = h.Job(id).reason();
  h.Join("n1");
  EXPECT_NE(h.Job(id).reason(), before);
  for (const StoreOperation& operation : h.last().store)
    EXPECT_FALSE(std::holds_alternative<PutJob>(operation)) << "the job was written again";
  EXPECT_EQ(h.last().changed, std::vector{id});
  h.Restart();
  h.Join("n1");
  EXPECT_EQ(h.State(id), JobState::kQueued);
  EXPECT_THAT(h.Job(id).reason(), HasSubstr("1 ready node has room"));
  EXPECT_EQ(h.CountEvents(id, "queued"), 1);
}

}  // namespace
}  // namespace muster
