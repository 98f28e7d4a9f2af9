// Scenarios of queues, shares, classes and planned starts, as a whole controller decides them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/wall_time.h"
#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Yaml(const std::string& name, int nodes, const std::string& limit,
                 const std::string& more = "") {
  return "name: " + name + "\nresources: {nodes: " + std::to_string(nodes) +
         (limit.empty() ? "" : ", time_limit: " + limit) + "}\nworkdir: /jobs\ncommand: [x]\n" +
         more;
}

struct TwoNodes : ControlHarness {
  TwoNodes() { JoinAll(); }
  void JoinAll() {
    Join("n1", {.slots = 1});
    Join("n2", {.slots = 1});
  }
  bool Waits(const JobId& id) { return State(id) == JobState::kQueued; }
  std::string Reason(const JobId& id) { return Job(id).reason(); }
  // The job's gang ends by itself.
  void Finish(const JobId& id) {
    StartAll(id);
    FinishAll(id);
  }
};

// A job has one of them for an hour, and one of both was promised its start after it.
struct WideWaits : TwoNodes {
  WideWaits() {
    StartAll(first);
    wide = Submit(Yaml("wide", 2, "1h"));
    promise = Promised();
    EXPECT_TRUE(HasEvent(wide, "promised", "at the latest")) << Timeline();
  }
  PromiseRecord Promised() { return Job(wide).record->promise; }

  const JobId first = Submit(Yaml("first", 1, "1h"));
  JobId wide;
  PromiseRecord promise;
};

constexpr char kTeams[] =
    "classes: {urgent: 10}\n"
    "queues:\n"
    "  default: {}\n"
    "  a: {}\n"
    "  b: {}\n";

TEST(BackfillScenarios, AShorterJobGoesAheadOfAPromisedStartAndALongerOneDoesNot) {
  WideWaits c;
  ASSERT_TRUE(c.Waits(c.wide));
  EXPECT_THAT(c.Reason(c.wide), HasSubstr("; starts at "));
  EXPECT_THAT(c.Reason(c.wide), Not(HasSubstr("kept for"))) << "by itself, it would be";
  const JobId longer = c.Submit(Yaml("longer", 1, "3h"));
  EXPECT_THAT(c.Reason(c.wide), Not(HasSubstr("kept for"))) << "in a later pass too";
  const JobId forever = c.Submit(Yaml("forever", 1, ""));
  EXPECT_TRUE(c.Waits(longer)) << "it would still have n2 when the other starts";
  EXPECT_TRUE(c.Waits(forever));
  EXPECT_THAT(c.Reason(longer), HasSubstr("kept for job " + c.wide.value));
  const JobId shorter = c.Submit(Yaml("shorter", 1, "10m"));
  EXPECT_FALSE(c.Waits(shorter)) << c.Timeline();
  c.Finish(shorter);
  c.FinishAll(c.first);
  EXPECT_FALSE(c.Waits(c.wide)) << "the limit is when it ends at the latest";
  EXPECT_EQ(c.Promised(), PromiseRecord());
}

// Its end was the time limit after each pass, as long as it was not launched.
TEST(BackfillScenarios, APromiseDoesNotMoveWhileTheGangAheadPrepares) {
  TwoNodes c;
  const JobId first = c.Submit(Yaml("first", 2, "1h"));
  const JobId wide = c.Submit(Yaml("wide", 2, "1h"));
  const JobId next = c.Submit(Yaml("next", 2, "1h"));
  const PromiseRecord promise = c.Job(wide).record->promise;
  ASSERT_GT(promise.start_unix_ms, 0);
  c.Advance(seconds(3));
  c.Submit(Yaml("another", 2, "1h"));
  EXPECT_EQ(c.Job(wide).record->promise, promise) << c.Timeline();
  c.StartAll(first);
  c.Submit(Yaml("again", 2, "1h"));
  EXPECT_LE(c.Job(wide).record->promise.start_unix_ms, promise.start_unix_ms);
  EXPECT_FALSE(c.HasEvent(next, "delayed")) << c.Timeline();
}

TEST(BackfillScenarios, ALostNodeDelaysAPromiseAtOnce) {
  WideWaits c;
  c.Leave("n2");
  c.Advance(minutes(3));
  EXPECT_TRUE(c.HasEvent(c.wide, "delayed", "lost, drained or broken")) << c.Timeline();
}

// It went before all classes and over its ceiling, as one whose gang had a fault.
TEST(BackfillScenarios, AResumedJobThatWaitsStillWaitsAfterARestart) {
  TwoNodes c;
  c.ApplyQueues("queues: {default: {}, a: {ceiling: {slots: 1}}}", 0);
  const JobId resumed = c.Submit(Yaml("resumed", 1, "", "queue: a\n"));
  c.StartAll(resumed);
  c.Suspend(resumed);
  c.QuiesceAll(resumed);
  ASSERT_EQ(c.State(resumed), JobState::kSuspended) << c.Timeline();
  const JobId second = c.Submit(Yaml("second", 1, "", "queue: a\n"));
  c.StartAll(second);
  c.Resume(resumed);
  ASSERT_TRUE(c.Waits(resumed)) << c.Timeline();
  const std::string node = c.Attempt(second).nodes.at(0).value;
  c.Restart();
  c.Join(node == "n1" ? "n2" : "n1", {.slots = 1});
  c.Join(node, {.slots = 1, .hosted = {c.Hosted(node, second, AttemptState::kRunning)}});
  c.Advance(seconds(5));
  EXPECT_TRUE(c.Waits(resumed)) << c.Timeline();
}

TEST(BackfillScenarios, APromiseOutlivesTheCoordinator) {
  WideWaits c;
  c.Restart();
  const JobId early = c.Submit(Yaml("early", 1, "3h"));
  c.Advance(minutes(1));
  EXPECT_TRUE(c.Waits(early)) << c.Timeline();
  EXPECT_EQ(c.Promised().start_unix_ms, c.promise.start_unix_ms) << c.Timeline();
}

TEST(BackfillScenarios, AStartThatIsDelayedSaysWhy) {
  WideWaits c;
  c.Drain("n2");
  EXPECT_TRUE(c.HasEvent(c.wide, "delayed", "no planned start any more")) << c.Timeline();
  EXPECT_TRUE(c.HasEvent(c.wide, "delayed", "lost, drained or broken")) << c.Timeline();
  c.Undrain("n2");
  EXPECT_THAT(c.Reason(c.wide), HasSubstr("starts at")) << c.Timeline();
}

UpdateRequested Limit(const JobId& id, std::int64_t seconds, bool force = false) {
  UpdateRequested request{.job = id.value, .force = force};
  request.time_limit_seconds = seconds;
  return request;
}

TEST(BackfillScenarios, ARefusedLimitNamesNoJobThatTheCallerMayNotSee) {
  WideWaits c;
  ASSERT_EQ(c.ApplyUsers("users: {eve: }\n").status, OkStatus());
  UpdateRequested longer = Limit(c.first, 4 * 3600);
  longer.actor = {.kind = Actor::Kind::kUser, .name = "eve"};
  const Status refused = c.Update(longer).status;
  EXPECT_THAT(refused.message(), HasSubstr("promised start of another job from"));
  EXPECT_THAT(refused.message(), Not(HasSubstr(c.wide.value)));
}

TEST(BackfillScenarios, ALongerLimitThatDelaysAPromiseTakesForce) {
  WideWaits c;
  const Reply refused = c.Update(Limit(c.first, 4 * 3600));
  EXPECT_EQ(refused.status.code(), StatusCode::kFailedPrecondition);
  const std::string delay = "job " + c.wide.value + " (wide) from " +
                            UtcTime(c.promise.start_unix_ms) + " to " +
                            UtcTime(c.promise.start_unix_ms + 3 * 3'600'000);
  EXPECT_THAT(refused.status.message(), HasSubstr("would delay the promised start of " + delay));
  EXPECT_THAT(refused.status.message(), HasSubstr("--force"));
  EXPECT_EQ(c.Job(c.first).record->time_limit_seconds, 3600);
  EXPECT_EQ(c.Promised(), c.promise);
  EXPECT_THAT(c.Update(Limit(c.first, 0)).status.message(), HasSubstr(" to no planned start"));

  const Reply forced = c.Update(Limit(c.first, 4 * 3600, /*force=*/true));
  ASSERT_TRUE(forced.status.ok()) << forced.status.ToString();
  EXPECT_EQ(std::get<UpdateAccepted>(forced.body).changed,
            "time limit 1h -> 4h; it delays " + delay);
  EXPECT_TRUE(c.HasEvent(c.first, "updated", "it delays " + delay)) << c.Timeline();
  EXPECT_TRUE(c.HasEvent(c.wide, "delayed",
                         "the time limit of job " + c.first.value + " (first) was raised by force"))
      << c.Timeline();
  c.Advance(hours(2));
  EXPECT_FALSE(c.Waits(c.first)) << c.Timeline();
  ASSERT_TRUE(c.Update(Limit(c.first, 3 * 3600)).status.ok()) << "a shorter one delays none";
}

TEST(BackfillScenarios, ALongerLimitThatDelaysNoPromiseIsTaken) {
  TwoNodes c;
  c.StartAll(c.Submit(Yaml("first", 1, "1h")));
  const JobId shorter = c.Submit(Yaml("shorter", 1, "10m"));
  c.StartAll(shorter);
  const JobId wide = c.Submit(Yaml("wide", 2, "1h"));
  const PromiseRecord promise = c.Job(wide).record->promise;
  ASSERT_TRUE(c.Update(Limit(shorter, 1800)).status.ok());
  EXPECT_EQ(c.Job(wide).record->promise, promise);
  EXPECT_FALSE(c.Update(Limit(shorter, 2 * 3600)).status.ok());
  ASSERT_TRUE(c.Update(Limit(wide, 5 * 3600)).status.ok()) << "it is the last";
  const JobId next = c.Submit(Yaml("next", 2, "1h"));
  ASSERT_TRUE(c.HasEvent(next, "promised")) << c.Timeline();
  EXPECT_THAT(c.Update(Limit(wide, 6 * 3600)).status.message(),
              HasSubstr("job " + next.value + " (next)"))
      << "a job that waits ahead of it";
  EXPECT_FALSE(c.HasEvent(next, "delayed")) << c.Timeline();
}

TEST(BackfillScenarios, AHigherClassGoesFirstAndThatIsNoted) {
  TwoNodes c;
  c.ApplyQueues(kTeams, 0);
  const JobId first = c.Submit(Yaml("first", 2, "1h"));
  c.StartAll(first);
  const JobId wide = c.Submit(Yaml("wide", 2, "1h"));
  ASSERT_TRUE(c.HasEvent(wide, "promised"));
  const JobId urgent = c.Submit(Yaml("urgent", 2, "2h", "class: urgent\n"));
  EXPECT_TRUE(c.HasEvent(wide, "delayed", "a job of a higher class goes first")) << c.Timeline();
  c.FinishAll(first);
  EXPECT_FALSE(c.Waits(urgent));
  EXPECT_TRUE(c.Waits(wide));
}

TEST(BackfillScenarios, APromiseEndsWithAHold) {
  WideWaits c;
  const JobId longer = c.Submit(Yaml("longer", 1, "3h"));
  ASSERT_TRUE(c.Waits(longer));
  ASSERT_TRUE(c.Hold(c.wide).status.ok());
  EXPECT_FALSE(c.Waits(longer)) << "nothing is owed to a job that is held";
  EXPECT_EQ(c.Promised(), PromiseRecord());
}

TEST(BackfillScenarios, AQueueDoesNotExceedItsCeiling) {
  TwoNodes c;
  c.ApplyQueues("queues: {default: {}, a: {ceiling: {slots: 1}}}", 0);
  const JobId first = c.Submit(Yaml("first", 1, "1h", "queue: a\n"));
  const JobId second = c.Submit(Yaml("second", 1, "", "queue: a\n"));
  EXPECT_FALSE(c.Waits(first));
  EXPECT_TRUE(c.Waits(second)) << "although n2 is free";
  EXPECT_THAT(c.Reason(second), HasSubstr("queue a would exceed its ceiling"));
  EXPECT_THAT(c.Reason(second), HasSubstr("starts at")) << "when the first one ends";
  const JobId other = c.Submit(Yaml("other", 1, "30m"));
  EXPECT_FALSE(c.Waits(other)) << "another queue may use what it leaves until then";
  const Reply never = c.SubmitRaw(Yaml("never", 2, "", "queue: a\n"));
  EXPECT_EQ(never.status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(never.status.message(),
              HasSubstr("needs 2 slots, more than the ceiling of queue a allows"));
}

TEST(BackfillScenarios, AQueueBelowItsGuaranteeGoesFirst) {
  TwoNodes c;
  c.ApplyQueues("queues: {default: {}, a: {guarantee: {slots: 1}}}", 0);
  const JobId first = c.Submit(Yaml("first", 2, ""));
  c.StartAll(first);
  const JobId borrows = c.Submit(Yaml("borrows", 1, ""));
  const JobId also = c.Submit(Yaml("also", 1, ""));
  const JobId owns = c.Submit(Yaml("owns", 1, "", "queue: a\n"));
  c.FinishAll(first);
  EXPECT_FALSE(c.Waits(owns)) << c.Timeline();
  EXPECT_FALSE(c.Waits(borrows));
  EXPECT_TRUE(c.Waits(also));
}

TEST(BackfillScenarios, JobsGetPriorityAndLimitOfTheirQueue) {
  TwoNodes c;
  c.ApplyQueues("queues: {default: {}, a: {priority: 70, time_limit: 2h}}", 0);
  const JobId plain = c.Submit(Yaml("plain", 1, "", "queue: a\n"));
  EXPECT_EQ(c.Job(plain).record->priority, 70);
  EXPECT_EQ(c.Job(plain).record->time_limit_seconds, 7200);
  const JobId own = c.Submit(Yaml("own", 1, "1h", "queue: a\npriority: 10\n"));
  EXPECT_EQ(c.Job(own).record->priority, 10);
  EXPECT_EQ(c.Job(own).record->time_limit_seconds, 3600);
  EXPECT_THAT(c.SubmitRaw(Yaml("long", 1, "3h", "queue: a\n")).status.message(),
              HasSubstr("resources.time_limit: queue a allows 2h, and this is 3h"));
  UpdateRequested request{.job = own.value};
  request.time_limit_seconds = 10800;
  EXPECT_THAT(c.Update(request).status.message(), HasSubstr("queue a allows 2h"));
  request.time_limit_seconds = 0;
  EXPECT_TRUE(c.Update(request).status.ok());
  EXPECT_EQ(c.Job(own).record->time_limit_seconds, 7200) << "no limit is the queue's limit";
}

TEST(BackfillScenarios, AnUnknownQueueOrClassIsRefusedWithTheNearestName) {
  TwoNodes c;
  c.ApplyQueues("classes: {urgent: 1}\nqueues: {default: {}, top: {queues: {vision: {}}}}", 0);
  EXPECT_THAT(c.SubmitRaw(Yaml("x", 1, "", "queue: visoin\n")).status.message(),
              HasSubstr("unknown queue 'visoin'; did you mean 'vision'?"));
  EXPECT_THAT(c.SubmitRaw(Yaml("x", 1, "", "class: urgnt\n")).status.message(),
              HasSubstr("did you mean 'urgent'?"));
  EXPECT_THAT(c.SubmitRaw(Yaml("x", 1, "", "queue: top\n")).status.message(),
              HasSubstr("top has queues of its own and takes no jobs"));
}

TEST(BackfillScenarios, AQueueIsRemovedOnceItsJobsAreMoved) {
  TwoNodes c;
  c.ApplyQueues(kTeams, 0);
  const JobId job = c.Submit(Yaml("job", 1, "", "queue: a\n"));
  const std::string without = "classes: {urgent: 10}\nqueues: {default: {}, b: {}}";
  const Reply refused = c.ApplyQueues(without, 1);
  EXPECT_EQ(refused.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status.message(), HasSubstr("queue a would be removed"));
  UpdateRequested move{.job = job.value};
  move.queue = "b";
  ASSERT_TRUE(c.Update(move).status.ok());
  EXPECT_TRUE(c.ApplyQueues(without, 1).status.ok());
  EXPECT_EQ(c.controller().Queues().queues[1].running, 1);
}

// The weights are equal, and the job of the queue that has had less came later.
TEST(BackfillScenarios, TheQueueThatHasHadLessGoesFirstAlsoAfterARestart) {
  for (const bool restart : {false, true}) {
    TwoNodes c;
    c.ApplyQueues(kTeams, 0);
    const JobId had = c.Submit(Yaml("had", 1, "", "queue: a\n"));
    c.StartAll(had);
    const JobId other = c.Submit(Yaml("other", 1, "", "queue: b\n"));
    c.StartAll(other);
    c.Advance(minutes(45));
    c.FinishAll(other);
    c.Advance(hours(5));
    c.FinishAll(had);
    const QueuesView queues = c.controller().Queues();
    EXPECT_NEAR(queues.queues[1].usage_share, 23.0 / 26, 0.03);
    EXPECT_NEAR(queues.queues[2].usage_share, 3.0 / 26, 0.03);
    const JobId block = c.Submit(Yaml("block", 2, ""));
    c.StartAll(block);
    const JobId of_a = c.Submit(Yaml("of-a", 2, "", "queue: a\n"));
    const JobId of_b = c.Submit(Yaml("of-b", 2, "", "queue: b\n"));
    if (restart) {
      c.Restart();
      for (const char* node : {"n1", "n2"})
        c.Join(node, {.slots = 1, .hosted = {c.Hosted(node, block, AttemptState::kRunning)}});
    }
    c.FinishAll(block);
    EXPECT_FALSE(c.Waits(of_b)) << c.Timeline();
    EXPECT_TRUE(c.Waits(of_a));
  }
}

TEST(BackfillScenarios, AnotherHalfLifeKeepsWhatQueuesHaveHad) {
  TwoNodes c;
  c.ApplyQueues(kTeams, 0);
  const JobId had = c.Submit(Yaml("had", 1, "", "queue: a\n"));
  c.StartAll(had);
  c.Advance(hours(3));
  c.FinishAll(had);
  const JobId other = c.Submit(Yaml("other", 1, "", "queue: b\n"));
  c.StartAll(other);
  c.Advance(hours(1));
  c.FinishAll(other);
  const double before = c.controller().Queues().queues[1].usage_share;
  ASSERT_TRUE(c.ApplyQueues(std::string("half_life: 1d\n") + kTeams, 1).status.ok());
  EXPECT_NEAR(c.controller().Queues().queues[1].usage_share, before, 1e-6);
  ASSERT_TRUE(c.ApplyQueues("queues: {default: {}, b: {}}", 2).status.ok());
  EXPECT_EQ(c.controller().Queues().queues[1].usage_share, 1) << "a is gone, and what it had";
  EXPECT_EQ(c.stored().queue_usage.count("a"), 0u);
}

}  // namespace
}  // namespace muster
