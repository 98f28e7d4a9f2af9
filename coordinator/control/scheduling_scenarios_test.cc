// Scenarios of what decides when a job is placed: held jobs, begins, and updates of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/wall_time.h"
#include "common/job_spec/job_times.h"
#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kHourMs = 3'600'000;

struct IdleNodes : ControlHarness {
  IdleNodes() {
    Join("n1");
    Join("n2");
  }
  void JoinAgain() {
    Join("n1");
    Join("n2");
  }
  std::string Reason(const JobId& id) { return Job(id).reason(); }
  bool WritesNothing() const { return LastWroteNothing(); }
};

const UpdateAccepted& Answer(const Reply& reply) {
  EXPECT_TRUE(reply.status.ok()) << reply.status.ToString();
  return std::get<UpdateAccepted>(reply.body);
}

UpdateRequested Priority(const JobId& id, int priority) {
  UpdateRequested request{.job = id.value};
  request.priority = priority;
  return request;
}
UpdateRequested TimeLimit(const JobId& id, std::int64_t seconds) {
  UpdateRequested request{.job = id.value};
  request.time_limit_seconds = seconds;
  return request;
}
UpdateRequested Begin(const JobId& id, std::int64_t unix_ms) {
  UpdateRequested request{.job = id.value};
  request.begin_unix_ms = unix_ms;
  return request;
}
UpdateRequested Queue(const JobId& id, const std::string& queue) {
  UpdateRequested request{.job = id.value};
  request.queue = queue;
  return request;
}
UpdateRequested Class(const JobId& id, const std::string& priority_class) {
  UpdateRequested request{.job = id.value};
  request.priority_class = priority_class;
  return request;
}

// It saves at step 13 and ends.
void SuspendIt(RunningJob& h) {
  ASSERT_TRUE(h.Suspend(h.id).status.ok());
  h.Checkpoint(h.id, 13);
  h.Manifest(h.id, h.Directory(h.id, 13));
  h.Exited(h.id, 0, {0, 0});
  h.Exited(h.id, 1, {0, 0});
  h.QuiesceAll(h.id);
  ASSERT_EQ(h.State(h.id), JobState::kSuspended) << h.Timeline();
}

// --- the distance between passes ---

std::string CommandOf(const std::string& name, int nodes, const std::string& limit) {
  return "name: " + name +
         "\nworkdir: /jobs\ncommand: [./hello]\nresources: {nodes: " + std::to_string(nodes) +
         ", ranks_per_node: 1, time_limit: " + limit + "}\n";
}

// So many jobs wait that a pass takes milliseconds; one of three nodes is free.
struct LongQueue : ControlHarness {
  LongQueue() {
    for (const char* node : {"n1", "n2", "n3"}) Join(node);
    running = Submit(CommandOf("first", 2, "1h"));
    RunTo(running, 1);
    next = Submit(CommandOf("next", 3, "1h"));
    for (int i = 0; i < 400; ++i) Submit(CommandOf("waits-" + std::to_string(i), 3, "1h"));
    Advance(seconds(1));
    Update(Priority(running, 51));  // a pass over all
  }
  JobId running, next;
};

TEST(PassTest, WhatBecomesFreeSoonAfterADearPassWaitsForTheNext) {
  LongQueue h;
  h.Cancel(h.running);
  h.QuiesceAll(h.running);
  // Nor does what comes then go before it.
  const JobId small = h.Submit(CommandOf("small", 1, "10m"));
  EXPECT_EQ(h.State(h.next), JobState::kQueued);
  EXPECT_EQ(h.State(small), JobState::kQueued);
  h.Advance(std::chrono::milliseconds(50));
  EXPECT_NE(h.State(h.next), JobState::kQueued) << h.Timeline();
}

TEST(PassTest, AJobThatComesIsPlacedAtOnceWhileALongQueueWaits) {
  LongQueue h;
  const JobId id = h.Submit(CommandOf("small", 1, "10m"));
  EXPECT_NE(h.State(id), JobState::kQueued);
}

TEST(PassTest, AJobThatComesLeavesWhatWasPromisedAlone) {
  LongQueue h;
  const JobId id = h.Submit(CommandOf("long", 1, "3h"));
  EXPECT_EQ(h.State(id), JobState::kQueued);
}

// A node of it is free before the other one, and an older job waits for that.
TEST(PassTest, WhatAnEndingGangLeavesIsNotForAJobThatComes) {
  ControlHarness h;
  for (const char* node : {"n1", "n2", "n3"}) h.Join(node);
  const JobId ends = h.Submit(CommandOf("ends", 2, "1h"));
  h.RunTo(ends, 1);
  const JobId other = h.Submit(CommandOf("other", 1, "1h"));
  h.RunTo(other, 1);
  const JobId older = h.Submit(CommandOf("older", 1, "1h"));
  h.Cancel(ends);
  h.Ended(ends, 0);
  h.QuiescedOn("n1", ends);
  const JobId comes = h.Submit(CommandOf("comes", 1, "1m"));
  EXPECT_NE(h.State(older), JobState::kQueued) << h.Timeline();
  EXPECT_EQ(h.State(comes), JobState::kQueued) << h.Timeline();
}

TEST(PassTest, ARecoveryDoesNotWaitForADistance) {
  LongQueue h;
  h.Exited(h.running, 0, {.exit_code = 1});
  h.QuiesceAll(h.running);
  EXPECT_EQ(h.Attempt(h.running).generation, 2) << h.Timeline();
}

// --- hold ---

TEST(HoldTest, AHeldJobIsNotPlacedUntilItIsReleased) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml());
  const Reply held = h.Hold(id, "no data yet");
  ASSERT_TRUE(held.status.ok()) << held.status.ToString();
  EXPECT_EQ(std::get<HoldAccepted>(held.body).state, JobState::kQueued);
  EXPECT_EQ(h.controller().PendingJobs(), 0) << "it waits for a user";
  h.Join("n1");
  h.Join("n2");
  h.Advance(seconds(30));
  EXPECT_EQ(h.State(id), JobState::kQueued) << h.Timeline();
  EXPECT_EQ(h.Job(id).reason(), "held: no data yet");
  EXPECT_TRUE(h.HasEvent(id, "held", "no data yet")) << h.Timeline();
  const Reply released = h.ReleaseHeld(id);
  ASSERT_TRUE(released.status.ok()) << released.status.ToString();
  EXPECT_EQ(std::get<ReleaseAccepted>(released.body).state, JobState::kStarting) << "in one commit";
  EXPECT_TRUE(h.HasEvent(id, "released"));
}

TEST(HoldTest, AHeldJobKeepsNoNodeFromOthers) {
  IdleNodes h;
  const std::string one_node = "resources: {nodes: 1}\nworkdir: /jobs\ncommand: [x]\n";
  const JobId first = h.Submit("name: first\n" + one_node);
  const JobId big = h.Submit(TrainYaml("big", "priority: 90\n"));
  const JobId second = h.Submit("name: second\n" + one_node);
  ASSERT_EQ(h.State(first), JobState::kStarting) << h.Timeline();
  ASSERT_EQ(h.State(second), JobState::kQueued) << "the other node is kept for the big one";
  ASSERT_TRUE(h.Hold(big).status.ok());
  EXPECT_EQ(h.State(second), JobState::kStarting) << h.Timeline();
}

TEST(HoldTest, IsDurableWithItsReason) {
  IdleNodes h;
  const JobId id = h.Submit(TrainYaml("held", "hold: true\n"));
  ASSERT_TRUE(h.Hold(id, "why").status.ok());
  h.Restart();
  h.JoinAgain();
  h.Advance(seconds(15));
  EXPECT_EQ(h.State(id), JobState::kQueued) << h.Timeline();
  EXPECT_EQ(h.Reason(id), "held: why");
  ASSERT_TRUE(h.ReleaseHeld(id).status.ok());
  h.Restart();
  h.JoinAgain();
  h.Advance(seconds(15));
  EXPECT_FALSE(h.Job(id).record->held);
  EXPECT_EQ(h.State(id), JobState::kStarting) << h.Timeline();
}

TEST(HoldTest, AJobFileCanHoldItsJobFromTheStart) {
  IdleNodes h;
  const JobId id = h.Submit(TrainYaml("held", "hold: true\n"));
  EXPECT_EQ(h.State(id), JobState::kQueued) << h.Timeline();
  EXPECT_EQ(h.Reason(id), "held by a user");
  EXPECT_TRUE(h.HasEvent(id, "held"));
  ASSERT_TRUE(h.ReleaseHeld(id).status.ok());
  EXPECT_EQ(h.State(id), JobState::kStarting);
}

TEST(HoldTest, RepeatedCallsWriteNothing) {
  IdleNodes h;
  const JobId id = h.Submit(TrainYaml("held", "hold: true\n"));
  EXPECT_TRUE(h.Hold(id).status.ok());
  EXPECT_TRUE(h.WritesNothing());
  EXPECT_EQ(h.CountEvents(id, "held"), 1);
  EXPECT_TRUE(h.Hold(id, "another reason").status.ok());
  EXPECT_FALSE(h.WritesNothing());
  EXPECT_EQ(h.Reason(id), "held: another reason");
  ASSERT_TRUE(h.ReleaseHeld(id).status.ok());
  EXPECT_TRUE(h.ReleaseHeld(id).status.ok());
  EXPECT_TRUE(h.WritesNothing());
  EXPECT_EQ(h.CountEvents(id, "released"), 1);
}

TEST(HoldTest, AJobThatRunsOrRecoversIsNotHeld) {
  RunningJob h;
  const Reply running = h.Hold(h.id);
  EXPECT_EQ(running.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(running.status.message(), HasSubstr("muster suspend " + h.id.value));
  h.Exited(h.id, 0, {1, 0});
  ASSERT_EQ(h.State(h.id), JobState::kRecovering) << h.Timeline();
  EXPECT_EQ(h.Hold(h.id).status.code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(h.Job(h.id).record->held);
  ASSERT_TRUE(h.Cancel(h.id).status.ok());
  h.QuiesceAll(h.id);
  ASSERT_EQ(h.State(h.id), JobState::kCancelled);
  EXPECT_EQ(h.Hold(h.id).status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(h.ReleaseHeld(h.id).status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(h.Hold(JobId{"unknown"}).status.code(), StatusCode::kNotFound);
}

TEST(HoldTest, ASuspendedJobThatIsHeldIsNotPlacedByItsResume) {
  IdleNodes h;
  const JobId id = h.Submit(TrainYaml("later", "hold: true\n"));
  ASSERT_TRUE(h.Suspend(id).status.ok());
  EXPECT_EQ(h.State(id), JobState::kSuspended);
  EXPECT_THAT(h.Reason(id), HasSubstr("suspended")) << "that is what it waits for";
  EXPECT_TRUE(h.Hold(id, "still").status.ok());
  ASSERT_TRUE(h.Resume(id).status.ok());
  EXPECT_EQ(h.State(id), JobState::kQueued) << h.Timeline();
  EXPECT_EQ(h.Reason(id), "held: still");
}

TEST(HoldTest, ACancelEndsAHeldJob) {
  IdleNodes h;
  const JobId id = h.Submit(TrainYaml("held", "hold: true\n"));
  ASSERT_TRUE(h.Cancel(id).status.ok());
  EXPECT_EQ(h.State(id), JobState::kCancelled);
  EXPECT_EQ(h.Reason(id), "cancelled by a user");
}

// --- begin ---

std::string BeginsAt(std::int64_t unix_ms) {
  EXPECT_EQ(unix_ms % 1000, 0);
  return "begin: " + Rfc3339(unix_ms) + "\n";
}

TEST(BeginTest, AJobIsPlacedWhenItsTimeHasCome) {
  IdleNodes h;
  const std::int64_t begin = h.now().unix_ms + kHourMs;
  const JobId id = h.Submit(TrainYaml("later", BeginsAt(begin)));
  EXPECT_EQ(h.State(id), JobState::kQueued) << h.Timeline();
  EXPECT_EQ(h.Job(id).record->begin_unix_ms, begin);
  EXPECT_EQ(h.Reason(id), "begins at 2023-11-14 23:13:20 UTC");
  h.Advance(hours(1) - seconds(1));
  EXPECT_EQ(h.State(id), JobState::kQueued) << h.Timeline();
  h.Advance(seconds(1));
  EXPECT_EQ(h.State(id), JobState::kStarting) << "its own deadline wakes the scheduler";
}

TEST(BeginTest, APastBeginCountsNothing) {
  IdleNodes h;
  const JobId id = h.Submit(TrainYaml("now", BeginsAt(h.now().unix_ms - 1000)));
  EXPECT_EQ(h.State(id), JobState::kStarting) << h.Timeline();
}

TEST(BeginTest, IsDurable) {
  IdleNodes h;
  const JobId id = h.Submit(TrainYaml("later", BeginsAt(h.now().unix_ms + 60'000)));
  h.Advance(seconds(20));
  h.Restart();
  h.JoinAgain();
  h.Advance(seconds(39));
  EXPECT_EQ(h.State(id), JobState::kQueued) << h.Timeline();
  EXPECT_THAT(h.Reason(id), HasSubstr("begins at"));
  h.Advance(seconds(1));
  EXPECT_EQ(h.State(id), JobState::kStarting) << h.Timeline();
}

TEST(BeginTest, AClockThatIsSetBackDoesNotMoveIt) {
  IdleNodes h;
  const JobId id = h.Submit(TrainYaml("later", BeginsAt(h.now().unix_ms + 60'000)));
  h.SetWallClock(-hours(5));
  h.Advance(seconds(59));
  EXPECT_EQ(h.State(id), JobState::kQueued) << h.Timeline();
  h.Advance(seconds(1));
  EXPECT_EQ(h.State(id), JobState::kStarting) << h.Timeline();
}

TEST(BeginTest, AClockThatIsSetBackKeepsNoRecoveringJobBack) {
  IdleNodes h;
  const JobId id = h.Submit(TrainYaml("later", BeginsAt(h.now().unix_ms + 60'000)));
  h.Advance(seconds(60));
  h.RunTo(id, 12);
  h.Checkpoint(id, 10);
  h.SetWallClock(-hours(5));
  h.Exited(id, 0, {0, 9});
  h.QuiesceAll(id);
  h.Restart();
  h.JoinAgain();
  h.Advance(seconds(15));
  EXPECT_EQ(h.Attempt(id).generation, 2) << h.Timeline();
}

TEST(BeginTest, OnlyTheTimeThatTheCliResolvedIsAccepted) {
  IdleNodes h;
  for (const char* begin : {"now+2h", "2033-01-15", "2033-01-15T08:00"}) {
    const Reply reply = h.SubmitRaw(TrainYaml("j", std::string("begin: ") + begin + "\n"));
    EXPECT_EQ(reply.status.code(), StatusCode::kInvalidArgument) << begin;
    EXPECT_THAT(reply.status.message(), HasSubstr("muster command")) << begin;
  }
}

TEST(BeginTest, FarAwayIsNotReachedAndBeyondACenturyIsRefused) {
  IdleNodes h;
  const std::int64_t most = h.now().unix_ms + kMaxSpanSeconds * 1000;
  const JobId id = h.Submit(TrainYaml("late", BeginsAt(most)));
  h.Advance(seconds(60));
  EXPECT_EQ(h.State(id), JobState::kQueued) << h.Timeline();
  EXPECT_GT(*h.controller().NextDeadline(), h.now().mono);
  const Reply never = h.SubmitRaw(TrainYaml("never", "begin: 9999-12-31T23:59:59Z\n"));
  EXPECT_EQ(never.status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(never.status.message(),
              AllOf(HasSubstr("begin: 9999-12-31 23:59:59 UTC is more than 36500d ahead"),
                    HasSubstr("muster hold")));
  const Reply later = h.Update(Begin(id, h.now().unix_ms + kMaxSpanSeconds * 1000 + 1));
  EXPECT_EQ(later.status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(later.status.message(), HasSubstr("is more than 36500d ahead"));
  EXPECT_EQ(h.Job(id).record->begin_unix_ms, most);
}

TEST(BeginTest, AnUpdateMovesAndRemovesIt) {
  IdleNodes h;
  const std::int64_t begin = h.now().unix_ms + kHourMs;
  const JobId id = h.Submit(TrainYaml("later", "hold: true\n"));
  EXPECT_EQ(Answer(h.Update(Begin(id, begin))).changed, "begin none -> 2023-11-14 23:13:20 UTC");
  ASSERT_TRUE(h.ReleaseHeld(id).status.ok());
  EXPECT_EQ(h.State(id), JobState::kQueued) << h.Timeline();
  ASSERT_TRUE(h.Update(Begin(id, h.now().unix_ms + 60'000)).status.ok());
  h.Restart();
  h.JoinAgain();
  EXPECT_EQ(h.State(id), JobState::kQueued) << h.Timeline();
  EXPECT_EQ(Answer(h.Update(Begin(id, 0))).changed, "begin 2023-11-14 22:14:20 UTC -> none");
  EXPECT_EQ(h.State(id), JobState::kStarting) << h.Timeline();
}

TEST(BeginTest, AJobThatHasBegunGetsNoOther) {
  IdleNodes h;
  const std::int64_t begin = h.now().unix_ms + 60'000;
  const JobId id = h.Submit(TrainYaml("later", BeginsAt(begin)));
  h.Advance(seconds(60));
  h.RunTo(id, 12);
  EXPECT_TRUE(h.Update(Begin(id, begin)).status.ok()) << "a repeated call";
  const Reply reply = h.Update(Begin(id, begin + kHourMs));
  EXPECT_EQ(reply.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(reply.status.message(), HasSubstr("muster suspend"));
  EXPECT_EQ(h.Job(id).record->begin_unix_ms, begin);
}

TEST(BeginTest, AJobThatIsResumedWaitsForTheBeginThatItGotMeanwhile) {
  RunningJob h;
  ASSERT_NO_FATAL_FAILURE(SuspendIt(h));
  ASSERT_TRUE(h.Update(Begin(h.id, h.now().unix_ms + 60'000)).status.ok());
  ASSERT_TRUE(h.Resume(h.id).status.ok());
  EXPECT_EQ(h.State(h.id), JobState::kQueued) << h.Timeline();
  h.Advance(seconds(60));
  EXPECT_EQ(h.State(h.id), JobState::kStarting) << h.Timeline();
}

// --- update ---

TEST(UpdateTest, SaysWhatItChangedAndIsDurable) {
  RunningJob h;
  UpdateRequested request = Priority(h.id, 80);
  request.time_limit_seconds = 7230;
  const UpdateAccepted answer = Answer(h.Update(request));
  EXPECT_EQ(answer.id, h.id);
  EXPECT_EQ(answer.state, JobState::kRunning);
  EXPECT_EQ(answer.changed, "priority 50 -> 80, time limit none -> 2h30s");
  EXPECT_TRUE(h.HasEvent(h.id, "updated", "updated: priority 50 -> 80")) << h.Timeline();
  h.Restart();
  EXPECT_EQ(h.Job(h.id).record->priority, 80);
  EXPECT_EQ(h.Job(h.id).record->time_limit_seconds, 7230);
}

TEST(UpdateTest, WithTheValuesThatItHasItWritesNothing) {
  RunningJob h;
  ASSERT_TRUE(h.Update(Priority(h.id, 80)).status.ok());
  EXPECT_FALSE(h.LastWroteNothing());
  for (const UpdateRequested& same :
       {Priority(h.id, 80), TimeLimit(h.id, 0), Begin(h.id, 0), Queue(h.id, "default"),
        Class(h.id, "normal"), UpdateRequested{.job = h.id.value}}) {
    EXPECT_EQ(Answer(h.Update(same)).changed, "");
    EXPECT_TRUE(h.LastWroteNothing());
  }
  EXPECT_EQ(h.CountEvents(h.id, "updated"), 1);
}

TEST(UpdateTest, APriorityMovesAJobAheadOfThoseThatWait) {
  ControlHarness h;
  const JobId first = h.Submit(TrainYaml("first"));
  const JobId second = h.Submit(TrainYaml("second"));
  ASSERT_TRUE(h.Update(Priority(second, 51)).status.ok());
  h.Restart();
  h.Join("n1");
  h.Join("n2");
  EXPECT_EQ(h.State(second), JobState::kStarting) << h.Timeline();
  EXPECT_EQ(h.State(first), JobState::kQueued);
}

TEST(UpdateTest, ValuesOutOfRangeChangeNothing) {
  RunningJob h;
  const std::int64_t century = std::int64_t{36'500} * 86'400;
  for (const UpdateRequested& wrong :
       {Priority(h.id, -1), Priority(h.id, 101), TimeLimit(h.id, -1), TimeLimit(h.id, century + 1),
        Begin(h.id, -1), Begin(h.id, std::int64_t{1} << 60), Queue(h.id, "team"),
        Queue(h.id, std::string(100'000, 'x')), Class(h.id, "high")}) {
    UpdateRequested request = wrong;
    if (!request.priority) request.priority = 80;
    const Reply reply = h.Update(request);
    EXPECT_EQ(reply.status.code(), StatusCode::kInvalidArgument) << reply.status.ToString();
    EXPECT_LT(reply.status.message().size(), 300u);
    EXPECT_TRUE(h.LastWroteNothing());
  }
  EXPECT_EQ(h.Job(h.id).record->priority, 50);
}

TEST(UpdateTest, AQueueOrClassThatIsNotThereIsRefusedAtTheSubmissionToo) {
  IdleNodes h;
  const Reply queue = h.SubmitRaw(TrainYaml("j", "queue: team\n"));
  EXPECT_EQ(queue.status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(queue.status.message(), HasSubstr("'team'"));
  const Reply priority_class = h.SubmitRaw(TrainYaml("j", "class: high\n"));
  EXPECT_EQ(priority_class.status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(priority_class.status.message(), HasSubstr("'high'"));
  EXPECT_TRUE(h.SubmitRaw(TrainYaml("j", "queue: default\nclass: normal\n")).status.ok());
}

TEST(UpdateTest, AJobThatIsOverStaysAsItIs) {
  RunningJob h;
  h.FinishAll(h.id);
  ASSERT_EQ(h.State(h.id), JobState::kSucceeded);
  EXPECT_EQ(h.Update(Priority(h.id, 80)).status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(h.Job(h.id).record->priority, 50);
  h.ArchiveIt();
  EXPECT_EQ(h.Update(Priority(h.id, 80)).status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(h.Update(Priority(JobId{"unknown"}, 80)).status.code(), StatusCode::kNotFound);
}

TEST(UpdateTest, ANewTimeLimitCountsAtOnce) {
  RunningJob h;
  ASSERT_TRUE(h.Update(TimeLimit(h.id, 3600)).status.ok());
  h.Advance(seconds(60));
  ASSERT_TRUE(h.Update(TimeLimit(h.id, 100)).status.ok());
  h.Advance(seconds(30));
  h.StepTo(h.id, 20);
  EXPECT_EQ(h.State(h.id), JobState::kRunning) << h.Timeline();
  h.Advance(seconds(11));
  EXPECT_EQ(h.State(h.id), JobState::kStopping) << h.Timeline();
  EXPECT_THAT(h.Job(h.id).reason(), HasSubstr("its time limit of 1 min 40 s is reached"));
}

TEST(UpdateTest, ATimeLimitThatHasPassedStopsTheJobAsItsTimeLimitWould) {
  RunningJob h;
  h.Advance(seconds(60));
  h.StepTo(h.id, 20);
  h.Forget();
  const Reply reply = h.Update(TimeLimit(h.id, 30));
  EXPECT_EQ(Answer(reply).state, JobState::kStopping) << h.Timeline();
  EXPECT_EQ(h.Take<Stop>("n1").size(), 1u) << "it saves its state";
  EXPECT_EQ(h.Update(TimeLimit(h.id, 3600)).status.code(), StatusCode::kFailedPrecondition)
      << "too late";
  h.Checkpoint(h.id, 21);
  h.Exited(h.id, 0, {0, 0});
  h.Exited(h.id, 1, {0, 0});
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kFailed) << h.Timeline();
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kTimeLimit);
}

TEST(UpdateTest, ATimeLimitThatIsRemovedOrRaisedIsNotReached) {
  std::string yaml = TrainYaml();
  yaml.replace(yaml.find("nodes: 2,"), 9, "nodes: 2, time_limit: 60s,");
  RunningJob h(yaml);
  ASSERT_TRUE(h.Update(TimeLimit(h.id, 120)).status.ok());
  h.Restart();
  h.Join("n1", {.hosted = {h.Hosted("n1", h.id, AttemptState::kRunning)}});
  h.Join("n2", {.hosted = {h.Hosted("n2", h.id, AttemptState::kRunning)}});
  h.Advance(seconds(30));
  h.StepTo(h.id, 20);
  h.Advance(seconds(35));
  h.StepTo(h.id, 30);
  EXPECT_EQ(h.State(h.id), JobState::kRunning) << "the record's limit counts: " << h.Timeline();
  ASSERT_TRUE(h.Update(TimeLimit(h.id, 0)).status.ok());
  for (Step step = 40; step < 46; ++step) {
    h.Advance(seconds(30));
    h.StepTo(h.id, step);
  }
  EXPECT_EQ(h.State(h.id), JobState::kRunning) << h.Timeline();
}

TEST(UpdateTest, ASuspendedJobGetsItsNewTimeLimitWhenItIsResumed) {
  RunningJob h;
  ASSERT_NO_FATAL_FAILURE(SuspendIt(h));
  h.Advance(seconds(600));
  EXPECT_EQ(Answer(h.Update(TimeLimit(h.id, 30))).state, JobState::kSuspended) << h.Timeline();
  ASSERT_TRUE(h.Resume(h.id).status.ok());
  h.Advance(seconds(31));
  EXPECT_EQ(h.State(h.id), JobState::kStopping) << h.Timeline();
}

// Records of versions that had it in the job file alone.
TEST(UpdateTest, AnOlderRecordHasTheTimeLimitOfItsJobFile) {
  std::string yaml = TrainYaml();
  yaml.replace(yaml.find("nodes: 2,"), 9, "nodes: 2, time_limit: 60s,");
  RunningJob h(yaml);
  JobRecord older = *h.Job(h.id).record;
  older.time_limit_seconds = kTimeLimitOfJobFile;
  h.Store(PutJob{older});
  h.Restart();
  EXPECT_EQ(h.Job(h.id).record->time_limit_seconds, 60);
  h.Join("n1", {.hosted = {h.Hosted("n1", h.id, AttemptState::kRunning)}});
  h.Join("n2", {.hosted = {h.Hosted("n2", h.id, AttemptState::kRunning)}});
  h.Advance(seconds(61));
  EXPECT_EQ(h.State(h.id), JobState::kStopping) << h.Timeline();
}

}  // namespace
}  // namespace muster
