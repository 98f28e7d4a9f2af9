// Scenarios of gangs that give way to a job that waits, as a whole controller decides them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/job_spec/parse.h"
#include "coordinator/control/explaining.h"
#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Train(const std::string& name, const std::string& resources,
                  const std::string& more = "") {
  std::string yaml = TrainYaml(name, more);
  return yaml.replace(yaml.find("nodes: 2, "), 10, resources + ", ");
}

constexpr char kUrgent[] = "class: urgent\n";
constexpr char kQueues[] =
    "classes: {urgent: 10}\n"
    "queues:\n"
    "  default: {}\n"
    "  a: {guarantee: {slots: 1}}\n";

// Two nodes of one slot; `low` trains on them, old enough to be a victim.
struct Preemption : ControlHarness {
  explicit Preemption(const std::string& resources = "nodes: 2") {
    Join("n1");
    Join("n2");
    ApplyQueues(kQueues, 0);
    low = Submit(Train("low", resources));
    RunTo(low, 12);
    Advance(minutes(11));
    StepTo(low, 13);
    Forget();
  }
  bool Waits(const JobId& id) { return State(id) == JobState::kQueued; }
  // What the ranks do when they are asked to stop.
  void Save(const JobId& id, Step step) {
    Checkpoint(id, step);
    Manifest(id, Directory(id, step));
    ExitAll(id);
  }
  void ExitAll(const JobId& id) {
    for (int rank = 0; rank < static_cast<int>(Attempt(id).ranks.size()); ++rank)
      Exited(id, rank, {0, 0});
    QuiesceAll(id);
  }
  void RestartWithGangs() {
    Restart();
    for (const char* node : {"n1", "n2"})
      Join(node, {.hosted = {Hosted(node, low, AttemptState::kRunning)}});
  }
  JobId low;
};

TEST(Preemption, AHigherClassPreemptsAndTheVictimGoesOnWhereItWas) {
  Preemption c;
  const JobId high = c.Submit(Train("high", "nodes: 1", kUrgent));
  EXPECT_EQ(c.State(c.low), JobState::kStopping) << c.Timeline();
  EXPECT_TRUE(c.HasEvent(c.low, "preempted", "for job " + high.value)) << c.Timeline();
  EXPECT_TRUE(c.HasEvent(c.low, "preempted", "class")) << c.Timeline();
  EXPECT_TRUE(c.HasEvent(c.low, "preempted", "rank-seconds; it stops at a step boundary"))
      << c.Timeline();
  EXPECT_EQ(c.CountEvents(c.low, "stopping") + c.CountEvents(c.low, "stopping_gang"), 0);
  EXPECT_TRUE(c.HasEvent(high, "reclaims", "job " + c.low.value)) << c.Timeline();
  EXPECT_TRUE(c.HasEvent(high, "promised")) << c.Timeline();
  EXPECT_EQ(c.Take<Stop>("n1").size(), 1u);
  EXPECT_TRUE(c.Take<Abort>("n1").empty()) << "it saves its state first";
  c.Save(c.low, 14);
  EXPECT_TRUE(c.Waits(c.low)) << c.Timeline();
  EXPECT_EQ(c.Attempt(c.low).cause_kind, CauseKind::kPreempted);
  EXPECT_TRUE(c.HasEvent(c.low, "queued", "it will go on at step 14")) << c.Timeline();
  EXPECT_EQ(c.State(high), JobState::kStarting) << c.Timeline();
  EXPECT_EQ(c.Job(c.low).record->reclaim, ReclaimRecord());
  c.RunTo(high, 5);
  c.Advance(minutes(1));
  c.FinishAll(high);
  ASSERT_EQ(c.State(c.low), JobState::kStarting) << c.Timeline();
  EXPECT_EQ(c.Attempt(c.low).tier, Tier::kRequeue);
  EXPECT_THAT(c.Attempt(c.low).nodes, ElementsAre(NodeName{"n1"}, NodeName{"n2"}));
  c.PrepareAll(c.low);
  EXPECT_EQ(c.Take<Launch>("n1").back().resume.at(0).step, 14);
}

// The order to the victim is stored by the wall clock, the promise of the claimant is monotonic.
TEST(Preemption, AClaimantIsNotDelayedByPartsOfAMillisecond) {
  Preemption c;
  const JobId high = c.Submit(Train("high", "nodes: 1", kUrgent));
  for (int i = 0; i < 4; ++i) {
    c.SetWallClock(std::chrono::microseconds(i % 2 == 0 ? -700 : 700));
    c.Submit(Train("low-" + std::to_string(i), "nodes: 1"));
    EXPECT_EQ(c.CountEvents(high, "delayed"), 0) << c.Timeline();
  }
}

TEST(Preemption, AnExplanationNamesTheGangsThatGiveWay) {
  Preemption c;
  const std::string yaml = Train("high", "nodes: 1", kUrgent);
  const auto reclaims = [](const Explanation& explanation) {
    std::vector<WaitCause> causes = explanation.causes;
    std::erase_if(causes, [](const WaitCause& each) { return each.code != WaitCode::kReclaim; });
    return causes;
  };
  const auto would = reclaims(Answer(**c.controller().AskWhy(*ParseJobSpec(yaml), "", c.now())));
  ASSERT_EQ(would.size(), 1u);
  EXPECT_EQ(would[0].job, c.low);
  EXPECT_THAT(would[0].text, testing::EndsWith(" rank-seconds"));
  EXPECT_EQ(would[0].at, kNever);
  const JobId high = c.Submit(yaml);
  const auto does = reclaims(Answer(*c.controller().AskWhy(high, c.now())));
  ASSERT_EQ(does.size(), 1u);
  EXPECT_EQ(does[0].job, c.low);
  EXPECT_EQ(does[0].text, would[0].text);
  EXPECT_GT(does[0].at, c.now().mono);
  EXPECT_LT(does[0].at, c.now().mono + minutes(30));
}

TEST(Preemption, AnIndexChangesWhenAGangMayGiveWay) {
  Preemption c;
  ASSERT_TRUE(c.ApplyQueues(std::string("preemption: {after: 1h}\n") + kQueues, 1).status.ok());
  const JobSpec high = *ParseJobSpec(Train("high", "nodes: 1", kUrgent));
  const auto index = [&] { return (*c.controller().AskWhy(high, "", c.now()))->view->index; };
  const std::uint64_t before = index();
  c.Advance(minutes(30));
  EXPECT_EQ(index(), before) << "it has run for less than an hour";
  c.Advance(minutes(30));
  EXPECT_NE(index(), before);
}

TEST(Preemption, AGuaranteeIsTakenBackFromAQueueThatBorrows) {
  Preemption c;
  const JobId own = c.Submit(Train("own", "nodes: 1", "queue: a\n"));
  EXPECT_TRUE(c.HasEvent(c.low, "preempted", "guarantee")) << c.Timeline();
  const JobId more = c.Submit(Train("more", "nodes: 1", "queue: a\n"));
  c.Save(c.low, 14);
  EXPECT_EQ(c.State(own), JobState::kStarting) << c.Timeline();
  EXPECT_EQ(c.CountEvents(more, "reclaims"), 0) << "it borrows itself";
}

TEST(Preemption, AYoungGangIsLeftAloneUntilItHasRunForTenMinutes) {
  Preemption c;
  const JobId high = c.Submit(Train("high", "nodes: 2", kUrgent));
  c.Save(c.low, 14);
  c.RunTo(high, 5);
  c.FinishAll(high);
  c.RunTo(c.low, 20);
  c.Submit(Train("again", "nodes: 2", kUrgent));
  c.Advance(minutes(30));
  EXPECT_EQ(c.State(c.low), JobState::kRunning) << "it was a victim within the hour";
  c.Advance(minutes(31));
  EXPECT_EQ(c.State(c.low), JobState::kStopping) << c.Timeline();
  Preemption d;
  ASSERT_TRUE(d.ApplyQueues(std::string("preemption: {after: 1h}\n") + kQueues, 1).status.ok());
  d.Submit(Train("high", "nodes: 2", kUrgent));
  EXPECT_EQ(d.State(d.low), JobState::kRunning);
  d.Advance(minutes(50));
  EXPECT_EQ(d.State(d.low), JobState::kStopping) << d.Timeline();
}

TEST(Preemption, AnElasticGangShrinksWithoutALossAndGrowsAgain) {
  Preemption c("nodes: 2, min_nodes: 1");
  const JobId high = c.Submit(Train("high", "nodes: 1", kUrgent));
  EXPECT_TRUE(c.HasEvent(c.low, "shrinking", "goes on with 1 node for job " + high.value))
      << c.Timeline();
  EXPECT_EQ(c.CountEvents(c.low, "preempted"), 0);
  EXPECT_EQ(c.State(c.low), JobState::kRunning);
  const std::string given = c.Job(c.low).record->reclaim.gives_up.at(0).value;
  c.Save(c.low, 14);
  EXPECT_EQ(c.Attempt(c.low).nodes.size(), 1u) << c.Timeline();
  EXPECT_EQ(c.Attempt(c.low).tier, Tier::kShrink);
  EXPECT_EQ(c.State(high), JobState::kStarting) << c.Timeline();
  EXPECT_EQ(c.Attempt(high).nodes.at(0).value, given);
  c.StartAll(c.low);
  c.TrainFrom(c.low, 14);
  EXPECT_EQ(c.Job(c.low).attempts->front().lost_steps, 0);
  c.RunTo(high, 5);
  c.Advance(minutes(5));
  EXPECT_EQ(c.Attempt(c.low).nodes.size(), 1u) << "it takes nothing back";
  c.FinishAll(high);
  ASSERT_EQ(c.State(c.low), JobState::kRecovering) << c.Timeline();
  c.ParkAll(c.low);
  EXPECT_EQ(c.Attempt(c.low).nodes.size(), 2u) << c.Timeline();
  EXPECT_EQ(c.Attempt(c.low).tier, Tier::kGrow);
  EXPECT_EQ(c.Job(c.low).record->reclaim, ReclaimRecord());
}

// Standbys of a train job stay on the nodes that it gives up until it has its next gang.
TEST(Preemption, AClaimantKeepsItsPlanWhileItsVictimFormsAgain) {
  Preemption c("nodes: 2, min_nodes: 1");
  for (const char* node : {"n3", "n4"}) c.Join(node);
  const JobId other = c.Submit(Train("other", "nodes: 2, min_nodes: 1"));
  c.RunTo(other, 12);
  c.Advance(minutes(11));
  const JobId high = c.Submit(Train("high", "nodes: 1", kUrgent));
  const JobId victim = c.CountEvents(c.low, "shrinking") == 1 ? c.low : other;
  const std::int64_t promised = c.Job(high).record->promise.start_unix_ms;
  ASSERT_GT(promised, 0) << c.Timeline();
  const AttemptRecord stopped = c.Attempt(victim);
  c.Checkpoint(victim, 14);
  for (int rank = 0; rank < 2; ++rank) c.Exited(victim, rank, {0, 0});
  for (const NodeName& node : stopped.nodes)
    c.Deliver(node.value, Quiesced{.job = victim, .generation = stopped.generation, .standbys = 1});
  ASSERT_EQ(c.Attempt(victim).nodes.size(), 1u) << c.Timeline();
  EXPECT_EQ(c.CountEvents(high, "delayed"), 0) << c.Timeline();
  EXPECT_EQ(c.Job(high).record->promise.start_unix_ms, promised);
  EXPECT_EQ(c.CountEvents(c.low, "shrinking") + c.CountEvents(other, "shrinking"), 1)
      << c.Timeline();
}

TEST(Preemption, WhatIsGivenUpIsKeptWhileOtherVictimsSave) {
  ControlHarness c;
  for (const char* node : {"n1", "n2", "n3"}) c.Join(node);
  c.ApplyQueues(kQueues, 0);
  const JobId elastic = c.Submit(Train("elastic", "nodes: 2, min_nodes: 1"));
  const JobId other = c.Submit(Train("other", "nodes: 1"));
  c.RunTo(elastic, 12);
  c.RunTo(other, 12);
  c.Advance(minutes(11));
  const JobId high = c.Submit(Train("high", "nodes: 2", kUrgent));
  ASSERT_EQ(c.State(other), JobState::kStopping) << c.Timeline();
  ASSERT_EQ(c.CountEvents(elastic, "shrinking"), 1) << c.Timeline();
  c.Checkpoint(elastic, 13);
  c.Exited(elastic, 0, {0, 0});
  c.Exited(elastic, 1, {0, 0});
  c.QuiesceAll(elastic);
  ASSERT_EQ(c.Attempt(elastic).nodes.size(), 1u) << c.Timeline();
  c.StartAll(elastic);
  c.TrainFrom(elastic, 13);
  const JobId small = c.Submit(Train("small", "nodes: 1"));
  c.Advance(seconds(65));
  EXPECT_EQ(c.State(small), JobState::kQueued) << c.Timeline();
  EXPECT_EQ(c.State(elastic), JobState::kRunning) << "it does not grow";
  EXPECT_EQ(c.State(high), JobState::kQueued);
  EXPECT_EQ(c.CountEvents(high, "delayed"), 0) << c.Timeline();
  c.Checkpoint(other, 13);
  c.Manifest(other, c.Directory(other, 13));
  c.Exited(other, 0, {0, 0});
  c.QuiesceAll(other);
  EXPECT_EQ(c.State(high), JobState::kStarting) << c.Timeline();
}

TEST(Preemption, ARestartBetweenDecisionAndStartNeitherForgetsNorRepeatsIt) {
  for (const char* resources : {"nodes: 2", "nodes: 2, min_nodes: 1"}) {
    Preemption c(resources);
    const JobId high = c.Submit(Train("high", "nodes: 1", kUrgent));
    const std::int64_t promised = c.Job(high).record->promise.start_unix_ms;
    ASSERT_GT(promised, 0);
    c.RestartWithGangs();
    EXPECT_EQ(c.Take<Stop>("n1").size(), 1u) << c.Timeline();
    c.Advance(seconds(20));
    const JobId next = c.Submit(Train("next", "nodes: 1"));
    EXPECT_EQ(c.Job(high).record->promise.start_unix_ms, promised);
    EXPECT_EQ(c.CountEvents(c.low, "preempted") + c.CountEvents(c.low, "shrinking"), 1);
    EXPECT_EQ(c.CountEvents(high, "reclaims"), 1);
    c.Save(c.low, 14);
    EXPECT_EQ(c.State(high), JobState::kStarting) << c.Timeline();
    EXPECT_EQ(c.CountEvents(high, "delayed"), 0) << c.Timeline();
    c.Submit(Train("after", "nodes: 2"));
    EXPECT_EQ(c.CountEvents(c.low, "preempted") + c.CountEvents(c.low, "shrinking"), 1);
  }
}

TEST(Preemption, AVictimThatDoesNotSaveInTimeIsEnded) {
  Preemption c;
  const JobId high = c.Submit(Train("high", "nodes: 1", kUrgent));
  c.Advance(seconds(100));
  EXPECT_EQ(c.CountEvents(high, "delayed"), 0) << c.Timeline();
  EXPECT_EQ(c.Take<Abort>("n1").size(), 1u) << c.Timeline();
  for (int rank : {0, 1}) c.Ended(c.low, rank);
  c.QuiesceAll(c.low);
  EXPECT_TRUE(c.Waits(c.low)) << c.Timeline();
  EXPECT_TRUE(c.HasEvent(c.low, "queued", "it had not stopped in time")) << c.Timeline();
  EXPECT_EQ(c.State(high), JobState::kStarting) << c.Timeline();
  EXPECT_LE(c.now().unix_ms, c.Job(high).record->submitted_unix_ms + 120'000);
}

TEST(Preemption, AVictimThatFailsWhileItSavesGoesBackToTheQueue) {
  for (const char* resources : {"nodes: 2", "nodes: 2, min_nodes: 1"}) {
    Preemption c(resources);
    const JobId high = c.Submit(Train("high", "nodes: 1", kUrgent));
    c.Exited(c.low, 0, {0, 11});
    c.Ended(c.low, 1);
    c.QuiesceAll(c.low);
    EXPECT_EQ(c.State(high), JobState::kStarting) << c.Timeline();
    const bool shrinks = std::string(resources) != "nodes: 2";
    EXPECT_EQ(c.State(c.low), shrinks ? JobState::kRecovering : JobState::kQueued) << c.Timeline();
  }
}

TEST(Preemption, WithoutItsClaimantAVictimStartsAgain) {
  for (const char* resources : {"nodes: 2", "nodes: 2, min_nodes: 1"}) {
    Preemption c(resources);
    const JobId high = c.Submit(Train("high", "nodes: 1", kUrgent));
    c.Cancel(high);
    c.Save(c.low, 14);
    EXPECT_EQ(c.Attempt(c.low).generation, 2) << c.Timeline();
    EXPECT_EQ(c.Attempt(c.low).nodes.size(), 2u) << c.Timeline();
    EXPECT_EQ(c.Job(c.low).record->reclaim, ReclaimRecord());
  }
}

TEST(Preemption, AUsersRequestOutranksIt) {
  Preemption c;
  const JobId high = c.Submit(Train("high", "nodes: 1", kUrgent));
  ASSERT_TRUE(c.Suspend(c.low).status.ok());
  c.Save(c.low, 14);
  EXPECT_EQ(c.State(c.low), JobState::kSuspended) << c.Timeline();
  EXPECT_EQ(c.State(high), JobState::kStarting) << c.Timeline();
  Preemption d;
  d.Submit(Train("high", "nodes: 1", kUrgent));
  ASSERT_TRUE(d.Cancel(d.low).status.ok());
  for (int rank : {0, 1}) d.Ended(d.low, rank);
  d.QuiesceAll(d.low);
  EXPECT_EQ(d.State(d.low), JobState::kCancelled) << d.Timeline();
}

// The time that a victim waits is not its own.
TEST(Preemption, TheTimeLimitStandsStillWhileAVictimWaits) {
  Preemption c("nodes: 2, time_limit: 1h");
  const JobId high = c.Submit(Train("high", "nodes: 2", kUrgent));
  c.Save(c.low, 14);
  c.RunTo(high, 5);
  c.Advance(minutes(90));
  ASSERT_TRUE(c.Waits(c.low)) << c.Timeline();
  c.FinishAll(high);
  c.StartAll(c.low);
  c.TrainFrom(c.low, 14);
  c.Advance(minutes(40));
  EXPECT_EQ(c.State(c.low), JobState::kRunning) << c.Timeline();
  c.Advance(minutes(10));
  EXPECT_EQ(c.State(c.low), JobState::kStopping) << c.Timeline();
}

// The gang whose last checkpoint is newer loses less.
TEST(Preemption, TheVictimIsTheOneThatLosesLeast) {
  ControlHarness c;
  c.Join("n1");
  c.Join("n2");
  c.ApplyQueues(kQueues, 0);
  std::vector<JobId> jobs;
  for (const char* name : {"saved", "unsaved"}) {
    jobs.push_back(c.Submit(Train(name, "nodes: 1")));
    c.RunTo(jobs.back(), 12);
  }
  c.Advance(minutes(20));
  c.StepTo(jobs[0], 20);
  c.Checkpoint(jobs[0], 20);
  c.Submit(Train("high", "nodes: 1", kUrgent));
  EXPECT_EQ(c.State(jobs[0]), JobState::kStopping) << c.Timeline();
  EXPECT_EQ(c.State(jobs[1]), JobState::kRunning);
}

}  // namespace
}  // namespace muster
