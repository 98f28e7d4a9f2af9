// Scenarios of nodes that are taken out of use, and of stopping at a step boundary.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// With a third node, where the job can move to.
struct Draining : RunningJob {
  explicit Draining(const std::string& yaml = TrainYaml())
      : RunningJob(yaml, {}, {"n1", "n2", "n3"}) {}
  NodeState StateOf(const std::string& node) { return Node(node).record->state; }
};

TEST(DrainTest, TheJobStopsAtAStepBoundaryAndMoves) {
  Draining h;
  const Reply reply = h.Drain("n2");
  ASSERT_TRUE(reply.status.ok()) << reply.status.ToString();
  EXPECT_THAT(std::get<DrainAccepted>(reply.body).jobs, ElementsAre(h.id));
  EXPECT_EQ(h.Take<Stop>("n1").size(), 1u);
  EXPECT_EQ(h.Take<Stop>("n2").size(), 1u);
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  h.Checkpoint(h.id, 13);
  h.Exited(h.id, 0, {0, 0});
  h.Exited(h.id, 1, {0, 0});
  h.QuiescedOn("n1", h.id);
  h.Deliver("n2", Quiesced{.job = h.id, .generation = 1, .standbys = 1});
  ASSERT_EQ(h.Attempt(h.id).generation, 2) << h.Timeline();
  EXPECT_EQ(h.Job(h.id).attempts->front().cause_kind, CauseKind::kDrained);
  EXPECT_EQ(h.Attempt(h.id).nodes[1].value, "n3");
  EXPECT_EQ(h.Job(h.id).record->attempts_without_progress, 0);
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDraining) << "a standby is left there";
  h.Deliver("n2", Quiesced{.job = h.id, .generation = 1});
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDrained);
  EXPECT_EQ(h.Node("n2").slots_used, 0);
}

TEST(DrainTest, ANodeOfAnotherPilotJobIsInUseAgain) {
  ControlHarness h;
  h.Join("n1", {.instance = "first", .pilot = "p1"});
  ASSERT_TRUE(h.Drain("n1").status.ok());
  EXPECT_EQ(h.Node("n1").record->state, NodeState::kDrained);
  h.Leave("n1");
  h.Join("n1", {.instance = "second", .pilot = "p1"});
  EXPECT_EQ(h.Node("n1").record->state, NodeState::kDrained) << "the same pilot job";
  h.Leave("n1");
  h.Join("n1", {.instance = "third", .pilot = "p2"});
  EXPECT_EQ(h.Node("n1").record->state, NodeState::kReady);
  EXPECT_EQ(h.Node("n1").record->drain_reason, "");
  EXPECT_EQ(h.Node("n1").record->pilot, "p2");
  h.Restart();
  EXPECT_EQ(h.Node("n1").record->pilot, "p2");
}

TEST(DrainTest, AQuarantineOutlastsThePilotJob) {
  ControlHarness h;
  h.Join("n1", {.instance = "first", .pilot = "p1"});
  h.Deliver("n1", NodeNotice{.kind = NodeNoticeKind::kXid, .detail = "Xid 79", .fatal = true});
  ASSERT_EQ(h.Node("n1").record->state, NodeState::kQuarantined);
  h.Leave("n1");
  h.Join("n1", {.instance = "second", .pilot = "p2"});
  EXPECT_EQ(h.Node("n1").record->state, NodeState::kQuarantined);
}

TEST(DrainTest, AStandbyThatIsLeftIsEndedBeforeTheNodeIsDrained) {
  Draining h;
  (void)h.Drain("n2");
  h.Exited(h.id, 1, {0, 0});
  h.QuiescedOn("n2", h.id);  // before it is asked for
  h.Exited(h.id, 0, {0, 0});
  h.Forget();
  h.QuiescedOn("n1", h.id);
  EXPECT_EQ(h.Attempt(h.id).nodes[1].value, "n3");
  EXPECT_EQ(h.Take<Abort>("n2").size(), 1u);
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDraining);
  h.Deliver("n2", Quiesced{.job = h.id, .generation = 1});
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDrained);
}

TEST(DrainTest, AStandbyBesideAProcessThatSurvivedSigkillIsEndedToo) {
  Draining h;
  (void)h.Drain("n2", 5);
  h.Advance(seconds(6));
  h.Forget();
  h.Deliver("n1", Quiesced{.job = h.id, .generation = 1});
  h.Deliver("n2", Quiesced{.job = h.id, .generation = 1, .unkillable_pids = {1001}, .standbys = 1});
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDraining);
  EXPECT_EQ(h.Take<Abort>("n2").size(), 1u);
  h.Deliver("n2", Quiesced{.job = h.id, .generation = 1, .unkillable_pids = {1001}});
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDrained);
}

TEST(DrainTest, AJobThatFinishesMeanwhileHasSucceeded) {
  Draining h;
  (void)h.Drain("n2");
  h.Report(h.id, 0, Finished{100, "/jobs/out/model"});
  h.FinishAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSucceeded);
}

TEST(DrainTest, WhatDoesNotStopInTimeIsEnded) {
  Draining h;
  (void)h.Drain("n2", 20);
  h.Exited(h.id, 0, {0, 0});
  h.Advance(seconds(19));
  EXPECT_TRUE(h.Take<Abort>("n2").empty());
  h.Advance(seconds(2));
  EXPECT_EQ(h.Take<Abort>("n2").size(), 1u);
  EXPECT_THAT(h.Attempt(h.id).cause, HasSubstr("had not stopped in time"));
  h.QuiesceAll(h.id);
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.Attempt(h.id).nodes[1].value, "n3");
}

TEST(DrainTest, AFaultOnTheWayIsAFault) {
  Draining h;
  (void)h.Drain("n2");
  h.Exited(h.id, 0, {0, 11});
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.Job(h.id).attempts->front().cause_kind, CauseKind::kRankKilled);
  EXPECT_EQ(h.Attempt(h.id).nodes[1].value, "n3");
}

TEST(DrainTest, ACommandIsEndedByItsSignal) {
  Draining h(CommandYaml());
  (void)h.Drain("n1");
  EXPECT_EQ(h.Take<Stop>("n1").size(), 1u);
  h.Exited(h.id, 0, {0, 15});
  h.Exited(h.id, 1, {0, 0});
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.Job(h.id).attempts->front().cause_kind, CauseKind::kDrained);
  EXPECT_EQ(h.Attempt(h.id).generation, 2);
}

TEST(DrainTest, ACommandThatEndsWellByItselfMeanwhileHasSucceeded) {
  Draining h(CommandYaml());
  (void)h.Drain("n1");
  h.Exited(h.id, 0, {0, 0});
  h.Exited(h.id, 1, {0, 0});
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSucceeded) << h.Timeline();
}

TEST(DrainTest, ACommandThatEndsWellBecauseItWasAskedToIsRunAgain) {
  Draining h(CommandYaml());
  (void)h.Drain("n1");
  HostedGeneration n1 = h.Hosted("n1", h.id, AttemptState::kRunning);
  HostedGeneration n2 = h.Hosted("n2", h.id, AttemptState::kRunning);
  const RankExited asked{.job = h.id, .generation = 1, .rank = 1, .end = {.asked_to_stop = true}};
  n2.exited.push_back(asked);
  h.Deliver("n2", asked);
  h.Restart();
  h.Join("n1", {.hosted = {n1}});
  h.Join("n2", {.hosted = {n2}});
  h.Exited(h.id, 0, {0, 0});
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.Job(h.id).attempts->front().cause_kind, CauseKind::kDrained) << h.Timeline();
  EXPECT_FALSE(IsTerminal(h.State(h.id)));
}

TEST(DrainTest, AGangThatIsNotUpYetIsPlacedElsewhereAtOnce) {
  ControlHarness h;
  for (const char* node : {"n1", "n2", "n3"}) h.Join(node);
  const JobId id = h.Submit(TrainYaml());
  (void)h.Drain("n2");
  EXPECT_EQ(h.Take<Abort>("n2").size(), 1u);
  h.QuiesceAll(id);
  EXPECT_EQ(h.Attempt(id).nodes[1].value, "n3");
}

TEST(DrainTest, WithoutRoomElsewhereTheJobWaitsUntilTheNodeIsUndrained) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 12);
  (void)h.Drain("n2");
  h.Exited(id, 0, {0, 0});
  h.Exited(id, 1, {0, 0});
  h.QuiesceAll(id);
  h.QuiesceAll(id);
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kDrained) << h.Timeline();
  EXPECT_EQ(h.State(id), JobState::kRecovering);
  ASSERT_TRUE(h.Undrain("n2").status.ok());
  EXPECT_EQ(h.Attempt(id).generation, 2);
  EXPECT_EQ(h.Attempt(id).tier, Tier::kRequeue);
}

TEST(DrainTest, WhatCannotBeDrainedIsRefused) {
  Draining h;
  EXPECT_EQ(h.Drain("n9").status.code(), StatusCode::kNotFound);
  EXPECT_EQ(h.Undrain("n1").status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(h.Drain("n3").status.ok());
  EXPECT_EQ(h.StateOf("n3"), NodeState::kDrained) << "nothing runs there";
  EXPECT_TRUE(h.Drain("n3").status.ok()) << "said again";
}

TEST(DrainTest, ANodesOwnNoticeIsADrain) {
  Draining h;
  NodeNotice notice{
      .kind = NodeNoticeKind::kDrain, .detail = "spot instance ends", .deadline_seconds = 30};
  h.Deliver("n2", notice);
  h.Deliver("n2", notice);
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDraining);
  EXPECT_EQ(h.Take<Stop>("n1").size(), 1u);
  EXPECT_THAT(h.Node("n2").record->drain_reason, HasSubstr("spot"));
  h.Advance(seconds(31));
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kAborting);
}

TEST(DrainRestartTest, TheDrainIsTakenUpAgain) {
  Draining h;
  (void)h.Drain("n2", 60);
  const HostedGeneration n1 = h.Hosted("n1", h.id, AttemptState::kRunning);
  const HostedGeneration n2 = h.Hosted("n2", h.id, AttemptState::kRunning);
  h.Restart();
  h.Join("n1", {.hosted = {n1}});
  h.Join("n2", {.hosted = {n2}});
  h.Join("n3");
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDraining);
  EXPECT_EQ(h.Take<Stop>("n1").size(), 1u);
  EXPECT_EQ(h.Take<Stop>("n2").size(), 1u);
  h.Exited(h.id, 0, {0, 0});
  h.Exited(h.id, 1, {0, 0});
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.Job(h.id).attempts->front().cause_kind, CauseKind::kDrained);
  h.Deliver("n2", Quiesced{.job = h.id, .generation = 1});
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDrained);
  h.Restart();
  h.Join("n2");
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDrained);
}

// The drain was cancelled, and the coordinator that had sent it is gone.
TEST(DrainRestartTest, RanksThatStoppedForADrainThatIsOverHaveNotFinished) {
  Draining h;
  const HostedGeneration n1 = h.Hosted("n1", h.id, AttemptState::kRunning);
  const HostedGeneration n2 = h.Hosted("n2", h.id, AttemptState::kRunning);
  (void)h.Drain("n2");
  (void)h.Undrain("n2");
  h.Restart();
  h.Join("n1", {.hosted = {n1}});
  h.Join("n2", {.hosted = {n2}});
  for (const int rank : {0, 1}) {
    RankExited exited{.job = h.id, .generation = 1, .rank = rank};
    exited.end.asked_to_stop = true;
    h.Deliver(rank == 0 ? "n1" : "n2", exited);
  }
  h.QuiesceAll(h.id);
  EXPECT_NE(h.State(h.id), JobState::kSucceeded) << h.Timeline();
  EXPECT_EQ(h.Job(h.id).attempts->front().cause_kind, CauseKind::kDrained);
  EXPECT_EQ(h.Attempt(h.id).generation, 2);
}

// Its ranks have all exited, so no rank is parked there; the abort that was to end the standby is
// lost.
TEST(DrainRestartTest, AStandbyOfAnOlderGenerationKeepsTheNodeFromBeingDrained) {
  Draining h;
  (void)h.Drain("n2");
  HostedGeneration n2 = h.Hosted("n2", h.id, AttemptState::kRunning);
  h.Exited(h.id, 0, {0, 0});
  h.Exited(h.id, 1, {0, 0});
  h.QuiescedOn("n1", h.id);
  h.Deliver("n2", Quiesced{.job = h.id, .generation = 1, .standbys = 1});
  ASSERT_EQ(h.Attempt(h.id).generation, 2) << h.Timeline();
  h.Restart();
  n2.quiesced = true;
  n2.standbys = 1;
  h.Join("n2", {.hosted = {n2}});
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDraining);
  EXPECT_EQ(h.Take<Abort>("n2").size() + h.Take<Release>("n2").size(), 1u);
  h.Deliver("n2", Quiesced{.job = h.id, .generation = 1});
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDrained);
}

TEST(DrainRestartTest, ANodeThatIsNotHeardOfYetIsNotDrained) {
  Draining h;
  HostedGeneration n2 = h.Hosted("n2", h.id, AttemptState::kRunning);
  (void)h.Cancel(h.id);
  h.Leave("n2");
  h.QuiescedOn("n1", h.id);
  h.Restart();
  (void)h.Drain("n2");
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDraining) << "ranks may run there";
  ControlHarness::NodeOptions options;
  options.hosted.push_back(n2);
  h.Join("n2", options);
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDraining);
  h.QuiescedOn("n2", h.id);
  h.Deliver("n2", Released{h.id});
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDrained);
}

TEST(DrainRestartTest, ALostNodeComesBackDrained) {
  Draining h;
  (void)h.Drain("n3");
  (void)h.Drain("n2");
  h.Leave("n2");
  h.Advance(seconds(11));
  EXPECT_EQ(h.StateOf("n2"), NodeState::kLost);
  h.QuiescedOn("n1", h.id);
  h.Join("n2");
  EXPECT_EQ(h.StateOf("n2"), NodeState::kDrained);
}

// Its machine is gone, as far as the coordinator knows. Something may still run there, so it counts
// as drained only when it has reported that nothing does.
TEST(DrainTest, ALostNodeStaysLostAndIsDrainedWhenItComesBack) {
  Draining h;
  h.Leave("n3");
  h.Advance(seconds(11));
  ASSERT_EQ(h.StateOf("n3"), NodeState::kLost);
  ASSERT_TRUE(h.Drain("n3").status.ok());
  EXPECT_EQ(h.StateOf("n3"), NodeState::kLost);
  EXPECT_THAT(h.Node("n3").record->reason, HasSubstr("drain requested: ")) << h.Timeline();
  h.Join("n3");
  EXPECT_EQ(h.StateOf("n3"), NodeState::kDrained) << "it was drained until 'muster undrain'";
  ASSERT_TRUE(h.Undrain("n3").status.ok());
  EXPECT_EQ(h.StateOf("n3"), NodeState::kReady);
}

// --- notices ---

std::vector<std::string> NoticesOf(ControlHarness& h) {
  std::vector<std::string> texts;
  for (const NoticeRecord& notice : h.Node("n1").record->notices) texts.push_back(notice.Text());
  return texts;
}

TEST(DrainTest, ANodeThatIsGoneWhenItIsUndrainedIsFoundToBeLost) {
  Draining h;
  (void)h.Drain("n3");
  ASSERT_EQ(h.StateOf("n3"), NodeState::kDrained);
  h.Leave("n3");
  h.Advance(seconds(11));
  (void)h.Undrain("n3");
  EXPECT_EQ(h.StateOf("n3"), NodeState::kSuspect);
  h.Advance(seconds(2));
  EXPECT_EQ(h.StateOf("n3"), NodeState::kLost) << h.Timeline();
}

TEST(NoticeTest, AFatalDeviceErrorQuarantinesTheNodeAndMovesItsJobs) {
  Draining h;
  h.Deliver("n2", NodeNotice{.kind = NodeNoticeKind::kXid,
                             .detail = "Xid 79 on GPU 3",
                             .devices = {"3"},
                             .fatal = true});
  EXPECT_EQ(h.StateOf("n2"), NodeState::kQuarantined);
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kDeviceFault);
  EXPECT_EQ(h.Take<Abort>("n2").at(0).kill_ranks, std::vector<int>{1});
  h.ParkAll(h.id);
  EXPECT_EQ(h.Attempt(h.id).nodes[1].value, "n3");
  ASSERT_TRUE(h.Undrain("n2").status.ok());
  EXPECT_EQ(h.StateOf("n2"), NodeState::kReady);
}

TEST(NoticeTest, OtherNoticesAreRecordedOnceAndTakenBack) {
  Draining h;
  for (int i = 0; i < 3; ++i) {
    h.Deliver("n1", NodeNotice{.kind = NodeNoticeKind::kMemoryPressure, .detail = "98 % used"});
  }
  EXPECT_THAT(NoticesOf(h), ElementsAre("memory: 98 % used"));
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  h.Deliver("n1", NodeNotice{.kind = NodeNoticeKind::kClear});
  EXPECT_TRUE(h.Node("n1").record->notices.empty());
  EXPECT_EQ(h.CountEvents(JobId{}, "node_notice"), 2);
  EXPECT_TRUE(h.HasEvent(JobId{}, "node_notice", "no notice is left"));
}

TEST(NoticeTest, WhatStillHoldsIsNotTakenBackWithWhatIsOver) {
  Draining h;
  h.Deliver("n1", NodeNotice{.kind = NodeNoticeKind::kMemoryPressure, .detail = "98 % used"});
  h.Deliver("n1", NodeNotice{.kind = NodeNoticeKind::kXid, .detail = "GPU 1: Xid 94"});
  h.Deliver("n1", NodeNotice{.kind = NodeNoticeKind::kXid, .detail = "GPU 2: Xid 94"});
  EXPECT_THAT(NoticesOf(h),
              ElementsAre("memory: 98 % used", "device: GPU 1: Xid 94", "device: GPU 2: Xid 94"));
  NodeNotice clear{.kind = NodeNoticeKind::kClear};
  clear.standing = {"98 % used", "GPU 2: Xid 94"};
  h.Deliver("n1", clear);
  h.Deliver("n1", clear);
  EXPECT_THAT(NoticesOf(h), ElementsAre("memory: 98 % used", "device: GPU 2: Xid 94"));
  EXPECT_TRUE(h.HasEvent(JobId{}, "node_notice", "over: GPU 1: Xid 94"));
  EXPECT_FALSE(h.HasEvent(JobId{}, "node_notice", "no notice is left")) << h.Timeline();
  EXPECT_EQ(h.CountEvents(JobId{}, "node_notice"), 4);
}

// --- the time limit ---

TEST(TimeLimitStopTest, ATrainJobSavesItsStateFirst) {
  std::string yaml = TrainYaml();
  yaml.replace(yaml.find("nodes: 2,"), 9, "nodes: 2, time_limit: 60s,");
  Draining h(yaml);
  h.Advance(seconds(61));
  EXPECT_EQ(h.State(h.id), JobState::kStopping);
  EXPECT_EQ(h.Take<Stop>("n1").size(), 1u);
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  h.Checkpoint(h.id, 13);
  h.Exited(h.id, 0, {0, 0});
  h.Exited(h.id, 1, {0, 0});
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kFailed);
  EXPECT_EQ(h.Job(h.id).record->committed_step, 13);
}

TEST(TimeLimitStopTest, AJobThatDoesNotStopIsEndedAndACancelNeedNotWait) {
  std::string yaml = TrainYaml();
  yaml.replace(yaml.find("nodes: 2,"), 9, "nodes: 2, time_limit: 60s,");
  {
    Draining h(yaml);
    h.Advance(seconds(122));
    EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
  }
  Draining h(yaml);
  h.Advance(seconds(61));
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  (void)h.Cancel(h.id);
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
}

// 60 s are not enough for the checkpoint of a large model.
TEST(TimeLimitStopTest, ACheckpointThatIsBeingWrittenIsWaitedFor) {
  std::string yaml = TrainYaml();
  yaml.replace(yaml.find("nodes: 2,"), 9, "nodes: 2, time_limit: 60s,");
  Draining h(yaml);
  h.Advance(seconds(61));
  RankProgress saving;
  saving.step = 13;
  saving.phase = TrainPhase::kCheckpoint;
  for (saving.stores = 1; saving.stores <= 5; ++saving.stores) {
    h.Deliver("n1", Progress{.job = h.id, .generation = 1, .ranks = {saving}});
    h.Advance(seconds(50));
  }
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  h.Advance(seconds(121));
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u) << "it does not get on any more";
}

struct OutOfTime : Draining {
  OutOfTime() : Draining(Yaml()) { Advance(seconds(61)); }
  static std::string Yaml() {
    std::string yaml = TrainYaml();
    return yaml.replace(yaml.find("nodes: 2,"), 9, "nodes: 2, time_limit: 60s,");
  }
};

// Reports of a job that is ending do not change its state.
TEST(TimeLimitStopTest, AFirstStepAfterTheTimeIsUpIsNoNews) {
  std::string yaml = TrainYaml();
  yaml.replace(yaml.find("resources: {"), 12, "resources: {time_limit: 60s, ");
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(yaml);
  h.PrepareAll(id);
  h.StartAll(id);
  h.ReportAll(id, Formed{});
  h.ReportAll(id, Resumed{.step = 0, .from = "start"});
  h.Advance(seconds(61));
  ASSERT_EQ(h.State(id), JobState::kStopping) << h.Timeline();
  h.Report(id, 0, FirstStep{1});
  EXPECT_EQ(h.State(id), JobState::kStopping);
  h.Exited(id, 0, {0, 0});
  h.Exited(id, 1, {0, 0});
  h.QuiesceAll(id);
  EXPECT_EQ(h.State(id), JobState::kFailed) << h.Timeline();
}

TEST(TimeLimitStopTest, ATrainedModelThatIsBeingWrittenIsWaitedFor) {
  std::string yaml = TrainYaml();
  yaml.replace(yaml.find("resources: {"), 12, "resources: {time_limit: 60s, ");
  RunningJob h(yaml);
  h.Advance(seconds(61));
  ASSERT_EQ(h.Take<Stop>("n1").size(), 1u);
  for (int i = 1; i < 20; ++i) {
    h.Advance(seconds(10));
    RankProgress rank;
    rank.rank = 0;
    rank.phase = TrainPhase::kExporting;
    rank.stores = static_cast<std::uint64_t>(i);
    h.Deliver("n1", Progress{.job = h.id, .generation = 1, .ranks = {rank}});
    ASSERT_NE(h.Attempt(h.id).state, AttemptState::kAborting) << i;
  }
  h.Advance(seconds(130));
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kAborting);
}

TEST(TimeLimitStopTest, WhateverHappensOnTheWayOutTheJobIsNotRecovered) {
  {
    OutOfTime h;
    h.Report(h.id, 0, Parked{13});
    h.Advance(seconds(1));
    h.QuiesceAll(h.id);
    EXPECT_EQ(h.State(h.id), JobState::kFailed);
  }
  {
    OutOfTime h;
    h.Deliver(
        "n2",
        NodeNotice{
            .kind = NodeNoticeKind::kXid, .detail = "Xid 79", .devices = {"0"}, .fatal = true});
    h.QuiesceAll(h.id);
    EXPECT_EQ(h.State(h.id), JobState::kFailed);
  }
  {
    OutOfTime h;
    h.Leave("n2");
    h.Advance(seconds(11));
    h.QuiescedOn("n1", h.id);
    EXPECT_EQ(h.State(h.id), JobState::kFailed);
  }
  OutOfTime h;
  h.Exited(h.id, 0, {0, 11});
  h.Exited(h.id, 1, {76, 0});
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kFailed);
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kTimeLimit);
}

TEST(TimeLimitStopTest, AJobThatDoesItsLastStepOnTheWayOutHasSucceeded) {
  {
    OutOfTime h;
    h.Report(h.id, 0, Finished{100, "/jobs/out/model"});
    h.FinishAll(h.id);
    EXPECT_EQ(h.State(h.id), JobState::kSucceeded) << h.Timeline();
  }
  OutOfTime h;
  h.Report(h.id, 0, Finished{100, "/jobs/out/model"});
  h.Exited(h.id, 0, {0, 0});
  h.Exited(h.id, 1, {3, 0});
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kFailed) << "a rank failed after the last step";
}

TEST(TimeLimitStopTest, AJobThatHasFinishedIsNotOutOfTimeWhileItEnds) {
  std::string yaml = OutOfTime::Yaml();
  Draining h(yaml);
  h.Exited(h.id, 0, {0, 0});
  h.Exited(h.id, 1, {0, 0});
  h.QuiescedOn("n1", h.id);
  h.Advance(seconds(61));
  h.QuiescedOn("n2", h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSucceeded) << h.Timeline();
}

TEST(TimeLimitStopTest, ACancelThatWasAcceptedWhileAFinishedJobEndsCounts) {
  Draining h;
  h.Exited(h.id, 0, {0, 0});
  h.Exited(h.id, 1, {0, 0});
  ASSERT_TRUE(h.Cancel(h.id).status.ok());
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kCancelled);
}

TEST(TimeLimitStopTest, ARestartInBetweenSendsTheStopAgain) {
  OutOfTime h;
  const HostedGeneration n1 = h.Hosted("n1", h.id, AttemptState::kRunning);
  const HostedGeneration n2 = h.Hosted("n2", h.id, AttemptState::kRunning);
  h.Restart();
  h.Join("n1", {.hosted = {n1}});
  h.Join("n2", {.hosted = {n2}});
  EXPECT_EQ(h.Take<Stop>("n2").size(), 1u);
  h.Exited(h.id, 0, {0, 0});
  h.Exited(h.id, 1, {0, 0});
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kFailed);
}

// A provider that takes the machine away does not wait for a drain without a deadline.
TEST(NoticeTest, ADeadlineOfTheNodeHastensADrainThatWasAskedForBefore) {
  Draining h;
  ASSERT_TRUE(h.Drain("n2").status.ok());
  EXPECT_EQ(h.Node("n2").record->drain_by_unix_ms, 0);
  h.Advance(seconds(1));
  h.Deliver("n2", NodeNotice{.kind = NodeNoticeKind::kDrain,
                             .detail = "the provider ends it",
                             .deadline_seconds = 30});
  const std::int64_t by = h.Node("n2").record->drain_by_unix_ms;
  EXPECT_GT(by, 0);
  h.Advance(seconds(1));
  h.Deliver("n2", NodeNotice{.kind = NodeNoticeKind::kDrain,
                             .detail = "the provider ends it",
                             .deadline_seconds = 29});
  h.Deliver("n2", NodeNotice{.kind = NodeNoticeKind::kDrain,
                             .detail = "the provider ends it",
                             .deadline_seconds = 60});
  EXPECT_EQ(h.Node("n2").record->drain_by_unix_ms, by) << "it is the same notice";
  EXPECT_EQ(h.CountEvents(JobId{}, "node_draining"), 2);
  h.Advance(seconds(30));
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kAborting) << h.Timeline();
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kDrained);
}

TEST(NoticeTest, WhyANodeIsOutOfUseIsStillShownWhenItReturns) {
  Draining h;
  h.Deliver("n2", NodeNotice{.kind = NodeNoticeKind::kXid,
                             .detail = "Xid 79 on GPU 3",
                             .devices = {"3"},
                             .fatal = true});
  ASSERT_TRUE(h.Drain("n3").status.ok());
  for (const char* node : {"n2", "n3"}) {
    const std::string reason = h.Node(node).record->reason;
    EXPECT_NE(reason, "");
    h.Leave(node);
    EXPECT_EQ(h.Node(node).record->reason, reason);
    h.Join(node);
    EXPECT_EQ(h.Node(node).record->reason, reason);
  }
}

}  // namespace
}  // namespace muster
