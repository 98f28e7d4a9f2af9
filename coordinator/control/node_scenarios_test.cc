// Scenarios of workers and nodes: silence, probers, loss, return.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// After an older store was restored.
TEST(NodeTest, ANodeThatHasServedAHigherEpochIsNotCommanded) {
  ControllerOptions options;
  options.epoch = 3;
  ControlHarness h(options);
  h.Join("n1", {.epoch_met = 3});
  EXPECT_EQ(h.Take<Welcome>("n1").size(), 1u);
  h.Join("n2", {.epoch_met = 7});
  ASSERT_EQ(h.closes.size(), 1u);
  EXPECT_THAT(h.closes[0].status.message(), HasSubstr("epoch 7, and this one has epoch 3"));
  EXPECT_TRUE(h.Take<Welcome>("n2").empty());
  EXPECT_EQ(h.higher_epoch, 7u);
  // It would be the last one.
  h.Join("n3", {.epoch_met = ~std::uint64_t{0}});
  EXPECT_EQ(h.closes.size(), 2u);
  EXPECT_EQ(h.higher_epoch, 7u);
}

TEST(NodeTest, AWorkerWithoutACommonProtocolIsRefusedByATypedMessage) {
  ControlHarness h;
  h.Join("n1", {.protocol_version = kProtocols.min - 1});
  ASSERT_EQ(h.closes.size(), 1u);
  EXPECT_EQ(h.closes[0].status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(h.closes[0].status.message(), HasSubstr("speaks protocol 1, this coordinator"));
  EXPECT_THAT(h.closes[0].status.message(), HasSubstr("speaks protocol 2; upgrade the worker"));
  const std::vector<Refused> refused = h.Take<Refused>("n1");
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].reason, RefusalReason::kProtocolVersion);
  EXPECT_EQ(refused[0].min_protocol_version, kProtocols.min);
  EXPECT_EQ(refused[0].max_protocol_version, kProtocols.max);
  EXPECT_TRUE(h.Take<Welcome>("n1").empty());
  h.Join("n2",
         {.protocol_version = kProtocols.max + 2, .min_protocol_version = kProtocols.max + 1});
  EXPECT_THAT(h.closes.back().status.message(), HasSubstr("speaks protocols 3 to 4, this"));
  EXPECT_THAT(h.closes.back().status.message(), HasSubstr("upgrade the coordinator"));
  EXPECT_TRUE(h.controller().Nodes().empty());
}

TEST(NodeTest, TheNewestProtocolThatBothSpeakIsTheStreams) {
  ControlHarness h;
  h.Join("n1", {.protocol_version = kProtocols.max + 1, .min_protocol_version = 1});
  const std::vector<Welcome> welcome = h.Take<Welcome>("n1");
  ASSERT_EQ(welcome.size(), 1u);
  EXPECT_EQ(welcome[0].protocol_version, kProtocols.max);
  EXPECT_EQ(welcome[0].min_protocol_version, kProtocols.min);
  EXPECT_EQ(welcome[0].max_protocol_version, kProtocols.max);
}

// While a worker was stopped, one with another directory took its name: what it did not list was
// taken for gone, and two ranks of one number ran.
TEST(NodeTest, AWorkerWithAnotherDirectoryProvesNothingAboutTheRanksThatRun) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.RunTo(id, 3);
  h.Leave("n1");
  h.Advance(seconds(11));
  h.Join("n1", {.instance = "second", .directory_id = "other"});
  ASSERT_EQ(h.closes.size(), 1u);
  EXPECT_THAT(h.closes[0].status.message(), HasSubstr("of a worker with another directory (pid"));
  EXPECT_FALSE(h.HasEvent(id, "note", "no longer has the ranks")) << h.Timeline();
  h.closes.clear();
  h.Join("n1", {.instance = "second", .directory_id = "other", .container_id = "new"});
  EXPECT_THAT(h.closes, IsEmpty()) << "the container with the ranks is gone";
}

TEST(NodeTest, AWorkerWithAnotherDirectoryIsWelcomeWhereNothingRuns) {
  ControlHarness h;
  h.Join("n1");
  h.Leave("n1");
  h.Join("n1", {.instance = "second", .directory_id = "other"});
  EXPECT_THAT(h.closes, IsEmpty());
}

TEST(NodeTest, ASecondLiveWorkerOfTheSameNameIsRefused) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n1", {.instance = "second"});
  ASSERT_EQ(h.closes.size(), 1u);
  EXPECT_EQ(h.closes[0].status.code(), StatusCode::kAlreadyExists);
  h.Leave("n1");
  h.Join("n1", {.instance = "second"});
  EXPECT_EQ(h.closes.size(), 1u);
  EXPECT_TRUE(h.Node("n1").connected);
}

// A stream stays open for a lease after its machine is gone; its successor had to wait for that.
TEST(NodeTest, ANewBootTakesTheNodeOverFromAHalfOpenStream) {
  RunningJob h;
  h.silent = {"n2"};
  h.Advance(seconds(2));
  ASSERT_TRUE(h.Node("n2").connected) << "its stream is half open";
  h.Join("n2", {.host_id = "rebooted", .instance = "second"});
  ASSERT_EQ(h.closes.size(), 1u);
  EXPECT_EQ(h.closes[0].status.code(), StatusCode::kAborted) << "of the old stream";
  EXPECT_EQ(h.Node("n2").record->instance, "second");
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kReady);
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kGuardianLost)
      << "its ranks are known to be gone";
  h.Handle(WorkerMessageReceived{2, Heartbeat{}});  // what was under way in the old stream
  EXPECT_TRUE(h.Node("n2").connected);
}

TEST(NodeTest, ASecondMachineOfTheSameNameIsRefusedWhileTheFirstSpeaks) {
  RunningJob h;
  for (int i = 0; i < 10; ++i) {
    h.Handle(WorkerHello{1000 + SessionId(i), [] {
                           Hello hello{.protocol_version = kProtocolVersion,
                                       .min_protocol_version = kProtocolVersion,
                                       .node = NodeName{"n2"}};
                           hello.host_id = "another machine";
                           hello.instance = "second";
                           return hello;
                         }()});
    ASSERT_EQ(h.closes.size(), i + 1u);
    EXPECT_EQ(h.closes.back().status.code(), StatusCode::kAlreadyExists);
    h.Advance(seconds(1));
  }
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  EXPECT_EQ(h.Attempt(h.id).generation, 1);
}

TEST(NodeTest, AnotherWorkerOfTheSameBootWaitsForTheLeaseOfASilentOne) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  h.silent = {"n2"};
  h.Advance(seconds(2));
  h.Join("n2", {.instance = "second"});
  ASSERT_EQ(h.closes.size(), 1u);
  EXPECT_EQ(h.closes[0].status.code(), StatusCode::kAlreadyExists) << "the old one may be stopped";
}

TEST(NodeTest, AWorkerThatComesBackWithinItsLeaseIsNoNewsToTheJob) {
  RunningJob h;
  h.Leave("n2");
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kSuspect);
  h.Advance(seconds(5));
  h.Join("n2", {.instance = "second", .hosted = {h.Hosted("n2", h.id, AttemptState::kRunning)}});
  h.Deliver("n1", Heartbeat{});
  h.Advance(seconds(8));
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  EXPECT_EQ(h.Job(h.id).record->restarts, 0);
  EXPECT_TRUE(h.Take<Abort>("n2").empty());
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kReady);
}

TEST(NodeTest, RoutineMessagesDoNotMoveTheTimer) {
  RunningJob h;
  const std::optional<TimePoint> due = h.controller().NextDeadline();
  ASSERT_TRUE(due.has_value());
  for (int i = 0; i < 3; ++i) {
    h.Advance(milliseconds(300));
    h.Deliver("n1", Heartbeat{});
    h.Deliver("n2", Heartbeat{});
    if (h.now().mono < *due) {
      EXPECT_EQ(h.controller().NextDeadline(), due);
    }
  }
  h.Advance(seconds(3));
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kReady) << "an early Tick accuses nobody";
  h.silent.insert("n2");
  h.Advance(seconds(2));
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kSuspect);
}

TEST(NodeTest, AnExitWhileTheStreamWasBrokenArrivesInTheHello) {
  RunningJob h;
  h.Leave("n2");
  h.Advance(seconds(2));
  HostedGeneration hosted = h.Hosted("n2", h.id, AttemptState::kRunning);
  hosted.exited.push_back({{}, 0, 1, {0, 11}, 1.5, {"segfault"}});
  h.Join("n2", {.hosted = {hosted}});
  EXPECT_EQ(h.Attempt(h.id).cause, "rank 1 on n2 was killed by SIGSEGV");
  EXPECT_EQ(h.Take<Abort>("n2").size(), 1u);
  h.QuiesceAll(h.id);
  EXPECT_NEAR(h.Attempt(h.id).seconds.detect, 1.5, 1e-9);
}

TEST(NodeTest, ALostNodeAbortsItsAttemptAndTheJobWaitsForAnother) {
  RunningJob h;
  h.Leave("n2");
  h.Advance(seconds(9));
  h.Deliver("n1", Heartbeat{});
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  h.Advance(seconds(2));
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kLost);
  EXPECT_THAT(h.Attempt(h.id).cause, StartsWith("node n2 was lost"));
  EXPECT_TRUE(h.Take<Abort>("n2").empty());
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
  h.QuiescedOn("n1", h.id);
  EXPECT_EQ(h.State(h.id), JobState::kRecovering);
  EXPECT_THAT(h.Job(h.id).reason(), HasSubstr("needs 2 nodes"));
  h.QuiescedOn("n1", h.id);  // what was parked is gone too
  h.Join("n3");
  EXPECT_EQ(h.Job(h.id).record->generation, 2);
  EXPECT_EQ(h.Attempt(h.id).nodes[1].value, "n3");
}

TEST(NodeTest, ANodeThatReturnsAfterItsLeaseMustFirstEndWhatItStillRuns) {
  RunningJob h;
  const HostedGeneration stale = h.Hosted("n2", h.id, AttemptState::kRunning);
  h.Leave("n2");
  h.Advance(seconds(9));
  h.Deliver("n1", Heartbeat{});
  h.Advance(seconds(2));
  h.QuiescedOn("n1", h.id);
  h.Join("n2", {.hosted = {stale}});
  EXPECT_EQ(h.Take<Abort>("n2").at(0).generation, 1);
  EXPECT_EQ(h.Job(h.id).record->generation, 1) << "its slot is still taken";
  h.QuiescedOn("n1", h.id);  // what was parked is gone too
  h.Deliver("n2", Quiesced{.job = h.id, .generation = 1});
  EXPECT_EQ(h.Job(h.id).record->generation, 2);
}

TEST(NodeTest, PeersThatFailWhileANodeIsSilentAreSymptomsOfItsLoss) {
  RunningJob h;
  h.Leave("n2");
  h.Advance(milliseconds(10));
  h.Exited(h.id, 0, {76, 0});
  h.Advance(milliseconds(60));
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kPeerLost);
  h.QuiescedOn("n1", h.id);
  for (int i = 0; i < 3; ++i) {
    h.Advance(seconds(4));
    h.Deliver("n1", Heartbeat{});
  }
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kEnded);
  EXPECT_THAT(h.Attempt(h.id).cause, StartsWith("node n2 was lost"));
}

TEST(NodeTest, ASilentNodeThatCannotBeProbedIsLostAfterALease) {
  ControlHarness h;
  h.Join("n1");
  h.Advance(seconds(9));
  EXPECT_EQ(h.Node("n1").record->state, NodeState::kReady);
  h.silent = {"n1"};
  h.Advance(milliseconds(1600));
  EXPECT_EQ(h.Node("n1").record->state, NodeState::kSuspect);
  h.Advance(seconds(8));
  EXPECT_TRUE(h.closes.empty());
  h.Advance(seconds(1));
  ASSERT_EQ(h.closes.size(), 1u);
  EXPECT_EQ(h.closes[0].status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(h.Node("n1").record->state, NodeState::kLost);
}

TEST(NodeTest, UnkillableProcessesKeepTheirSlots) {
  RunningJob h;
  h.Exited(h.id, 0, {1, 0});
  h.Deliver("n1", Quiesced{.job = h.id, .generation = 1});
  h.Deliver("n2", Quiesced{.job = h.id, .generation = 1, .unkillable_pids = {1001}, .standbys = 1});
  EXPECT_EQ(h.Node("n2").slots_used, 2) << "a standby is left beside it";
  h.Deliver("n2", Quiesced{.job = h.id, .generation = 1, .unkillable_pids = {1001}});
  EXPECT_EQ(h.Node("n2").slots_used, 1);
  EXPECT_EQ(h.State(h.id), JobState::kRecovering);
  EXPECT_EQ(h.Attempt(h.id).generation, 1) << "the slot of the unkillable rank was used";
  EXPECT_EQ(h.Attempt(h.id).ranks[1].state, RankState::kUnkillable);
  h.QuiescedOn("n1", h.id);  // what was parked is gone too
  h.Join("n3");
  EXPECT_EQ(h.Attempt(h.id).nodes[1].value, "n3");
  // Another boot of the machine: nothing can be left.
  h.Leave("n2");
  h.Join("n2", {.host_id = "rebooted"});
  EXPECT_EQ(h.Node("n2").slots_used, 0);
}

TEST(NodeTest, TheSlotOfAnUnkillableProcessComesBackWithItsEnd) {
  RunningJob h;
  h.Exited(h.id, 0, {1, 0});
  h.Deliver("n1", Quiesced{.job = h.id, .generation = 1});
  h.Deliver("n2", Quiesced{.job = h.id, .generation = 1, .unkillable_pids = {1001}});
  h.Deliver("n2", Quiesced{.job = h.id, .generation = 1, .unkillable_pids = {1001}});
  ASSERT_EQ(h.Node("n2").slots_used, 1);
  h.Leave("n2");
  HostedGeneration stuck = h.Hosted("n2", h.id, AttemptState::kRunning);
  h.Join("n2", {.hosted = {stuck}});
  h.Deliver("n2", Quiesced{.job = h.id, .generation = 1, .unkillable_pids = {1001}});
  EXPECT_EQ(h.Node("n2").slots_used, 1);
  ASSERT_EQ(h.Attempt(h.id).generation, 1);
  h.Deliver("n2", Released{h.id});
  EXPECT_EQ(h.Attempt(h.id).generation, 2) << "the slot is used again";
}

// Runs with a rank on n1 and one on n2, where 4242 of an older generation has survived SIGKILL.
JobId SubmitBesideASurvivor(ControlHarness& h) {
  h.Join("n1");
  h.Join("n2", {.slots = 2});
  const JobId id = h.Submit(TrainYaml());
  h.StartAll(id);
  h.Leave("n2");
  HostedGeneration hosted = h.Hosted("n2", id, AttemptState::kRunning);
  hosted.unkillable_pids = {4242};
  h.Join("n2", {.hosted = {hosted}});
  return id;
}

TEST(NodeTest, AHelloTellsOfProcessesThatSurvivedSigkillWhereTheirReportWasLost) {
  ControlHarness h;
  const JobId id = SubmitBesideASurvivor(h);
  EXPECT_EQ(h.Attempt(id).state, AttemptState::kRunning) << h.Timeline();
  EXPECT_EQ(h.Node("n2").slots_used, 2) << "its slot would be given away";
}

TEST(NodeTest, AParkedProcessKeepsItsSlotBesideASurvivorOfSigkillOfAnOlderGeneration) {
  ControlHarness h;
  const JobId id = SubmitBesideASurvivor(h);
  h.Exited(id, 0, {1, 0});
  h.Deliver("n2",
            Quiesced{.job = id, .generation = 1, .unkillable_pids = {4242}, .parked_ranks = {1}});
  EXPECT_EQ(h.Node("n2").slots_used, 2) << "its slot would be given away";
}

TEST(NodeTest, AGangThatIsPreparedWithoutRoomBesideSurvivorsOfSigkillInAHelloIsMadeAnew) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  ASSERT_EQ(h.Attempt(id).state, AttemptState::kPreparing);
  h.Leave("n2");
  HostedGeneration hosted = h.Hosted("n2", id, AttemptState::kPreparing);
  hosted.unkillable_pids = {4242};
  h.Join("n2", {.hosted = {hosted}});
  EXPECT_EQ(h.Attempt(id).cause_kind, CauseKind::kPrepareFailed) << h.Timeline();
}

TEST(NodeTest, AJobThatWaitsForProcessesThatSurvivedSigkillGoesOnAtTheirEnd) {
  ControlHarness h;
  h.Join("n1", {.slots = 2});
  h.Join("n2", {.slots = 2});
  std::string yaml = TrainYaml();
  const std::string one = "ranks_per_node: 1";
  yaml.replace(yaml.find(one), one.size(), "ranks_per_node: 2");
  const JobId id = h.Submit(yaml);
  h.StartAll(id);
  h.Exited(id, 0, {1, 0});
  h.Deliver("n1", Quiesced{.job = id, .generation = 1});
  const std::int64_t first = h.Attempt(id).ranks[2].pid;
  const std::int64_t second = h.Attempt(id).ranks[3].pid;
  h.Deliver("n2", Quiesced{.job = id, .generation = 1, .unkillable_pids = {first, second}});
  EXPECT_EQ(h.Node("n2").slots_used, 2);
  EXPECT_EQ(h.Attempt(id).generation, 1) << "n2 has no room";
  h.Deliver("n2", Quiesced{.job = id, .generation = 1, .unkillable_pids = {second}});
  EXPECT_EQ(h.Node("n2").slots_used, 1);
  EXPECT_EQ(h.Attempt(id).generation, 1);
  h.Deliver("n2", Quiesced{.job = id, .generation = 1});
  EXPECT_EQ(h.Attempt(id).generation, 2) << h.Timeline();
  EXPECT_EQ(h.Node("n2").slots_used, 2) << "of the new generation";
}

TEST(NodeTest, TheEndOfAnOlderGenerationsStuckProcessGivesItsSlotBackBesideARunningGang) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2", {.slots = 2});
  const JobId id = h.Submit(TrainYaml());
  h.StartAll(id);
  h.Exited(id, 0, {1, 0});
  const std::int64_t pid = h.Attempt(id).ranks[1].pid;
  h.Deliver("n1", Quiesced{.job = id, .generation = 1});
  h.Deliver("n2", Quiesced{.job = id, .generation = 1, .unkillable_pids = {pid}});
  ASSERT_EQ(h.Attempt(id).generation, 2) << "n2 has room beside it";
  h.StartAll(id);
  ASSERT_EQ(h.Node("n2").slots_used, 2);
  h.Deliver("n2", Quiesced{.job = id, .generation = 1});
  EXPECT_EQ(h.Node("n2").slots_used, 1);
  EXPECT_EQ(h.Attempt(id).generation, 2);
  EXPECT_EQ(h.Attempt(id).state, AttemptState::kRunning);
}

TEST(NodeTest, AHelloWithoutTheJobGivesTheSlotOfItsUnkillableProcessBack) {
  RunningJob h;
  h.Exited(h.id, 0, {1, 0});
  h.Deliver("n1", Quiesced{.job = h.id, .generation = 1});
  h.Deliver("n2", Quiesced{.job = h.id, .generation = 1, .unkillable_pids = {1001}});
  ASSERT_EQ(h.Attempt(h.id).generation, 1);
  h.Leave("n2");
  h.Join("n2");
  EXPECT_EQ(h.Attempt(h.id).generation, 2) << "the slot is used again";
}

TEST(NodeTest, AGangIsNotPreparedOnANodeThatStuckProcessesLeaveNoRoom) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  h.Deliver("n2", Quiesced{.job = id, .generation = 1, .unkillable_pids = {4242}});
  EXPECT_EQ(h.Attempt(id).state, AttemptState::kAborting);
  EXPECT_EQ(h.Attempt(id).cause_kind, CauseKind::kPrepareFailed);
  EXPECT_EQ(h.Attempt(id).failed_node.value, "n2");
}

TEST(NodeTest, WhatIsStuckOfAnOlderGenerationLeavesNoRoomForANewerOne) {
  RunningJob h;
  const HostedGeneration stale = h.Hosted("n2", h.id, AttemptState::kRunning);
  h.Leave("n2");
  h.Advance(seconds(11));
  h.QuiescedOn("n1", h.id);
  h.QuiescedOn("n1", h.id);
  h.Join("n2", {.hosted = {stale}});
  h.Join("n3");
  ASSERT_EQ(h.Attempt(h.id).generation, 2);
  ASSERT_EQ(h.Attempt(h.id).nodes[1].value, "n3");
  h.PreparedOn("n1", h.id);
  // The node belongs to the new gang, and its report concerns the generation before.
  h.Deliver("n3", Quiesced{.job = h.id, .generation = 1, .unkillable_pids = {4242}});
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kAborting);
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kPrepareFailed);
  EXPECT_EQ(h.Attempt(h.id).failed_node.value, "n3");
}

TEST(NodeTest, AGuardianOfAnUnknownJobIsReleased) {
  ControlHarness h;
  HostedGeneration stray;
  stray.job = JobId{"0123456789"};
  stray.generation = 4;
  stray.launched = true;
  stray.started.push_back({stray.job, 4, 0, 99});
  h.Join("n1", {.hosted = {stray}});
  EXPECT_EQ(h.Take<Release>("n1").size(), 1u);
  EXPECT_EQ(h.Node("n1").slots_used, 1);
  h.Deliver("n1", Released{stray.job});
  EXPECT_EQ(h.Node("n1").slots_used, 0);
}

TEST(NodeTest, AWorkerWhoseGuardianDiedReportsItsRanksMissing) {
  RunningJob h;
  h.Leave("n2");
  h.Join("n2", {.instance = "second"});
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kGuardianLost);
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
  h.QuiescedOn("n1", h.id);
  EXPECT_EQ(h.Job(h.id).record->generation, 2);
}

TEST(NodeTest, ReleaseIsSentAgainToANodeThatWasAwayWhenTheJobEnded) {
  RunningJob h(CommandYaml());
  h.Exited(h.id, 0, {0, 0});
  h.Exited(h.id, 1, {0, 0});
  HostedGeneration idle = h.Hosted("n2", h.id, AttemptState::kRunning);
  idle.quiesced = true;
  h.QuiesceAll(h.id);
  h.Leave("n2");
  h.Forget();
  h.Join("n2", {.hosted = {idle}});
  EXPECT_EQ(h.Take<Release>("n2").size(), 1u);
  h.Leave("n2");
  h.Join("n2");  // nothing hosted: it is gone
  EXPECT_EQ(h.Job(h.id).record->pending_release.size(), 1u);
}

// --- probers ---

// Three nodes that can be looked at; the job trains on n1 and n2.
struct Watched : ControlHarness {
  explicit Watched(const std::string& resources = "nodes: 2, ranks_per_node: 1") {
    for (const char* node : {"n1", "n2", "n3"}) Join(node, {.metrics_port = 9100});
    std::string yaml = TrainYaml();
    const std::string old = "nodes: 2, ranks_per_node: 1";
    id = Submit(yaml.replace(yaml.find(old), old.size(), resources));
    RunTo(id, 12);
    Forget();
  }
  // Both others report this of n2.
  void Prober(ProbeOutcome outcome) {
    for (const char* node : {"n1", "n3"}) {
      for (const Probe& probe : Take<Probe>(node)) {
        Deliver(node,
                ProbeResult{.probe_id = probe.probe_id, .node = probe.node, .outcome = outcome});
      }
    }
  }
  JobId id;
};

TEST(IndirectProbeTest, ASilentNodeThatNoProberReachesIsLostWithinSeconds) {
  Watched h;
  h.silent = {"n2"};
  h.Advance(milliseconds(1600));
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kSuspect);
  const Probe probe = h.Take<Probe>("n3").at(0);
  EXPECT_EQ(probe.node.value, "n2");
  EXPECT_EQ(probe.port, 9100);
  EXPECT_EQ(probe.timeout_ms, 500);
  h.Deliver("n3", ProbeResult{.probe_id = probe.probe_id,
                              .node = probe.node,
                              .outcome = ProbeOutcome::kUnreachable});
  h.Prober(ProbeOutcome::kUnreachable);
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  h.Advance(milliseconds(1500));
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kLost);
  EXPECT_THAT(h.Attempt(h.id).cause, HasSubstr("n2 was lost: no other node reaches it"));
  h.ParkedOn("n1", h.id);
  EXPECT_EQ(h.Attempt(h.id).nodes[1].value, "n3");
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kSpare);
}

TEST(IndirectProbeTest, EachSilentNodeHasProbersOfItsOwn) {
  ControlHarness h;
  const std::vector<std::string> names = {"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"};
  for (const std::string& name : names) h.Join(name, {.metrics_port = 9100});
  h.Leave("n3");
  h.Leave("n4");  // of the same rack
  for (const char* name : {"n1", "n2", "n5", "n6", "n7"}) {
    EXPECT_EQ(h.Take<Probe>(name).size(), 1u) << name;
  }
}

TEST(IndirectProbeTest, OneNodeThatRepeatsItsAnswerDoesNotSpeakForTheOthers) {
  Watched h;
  h.silent = {"n2"};
  h.Advance(milliseconds(2600));
  const Probe probe = h.Take<Probe>("n3").back();
  for (int i = 0; i < 10; ++i) {
    h.Deliver("n3", ProbeResult{.probe_id = probe.probe_id,
                                .node = probe.node,
                                .outcome = ProbeOutcome::kUnreachable});
  }
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kSuspect) << "n1 was asked too";
  h.Deliver("n1", ProbeResult{.probe_id = probe.probe_id,
                              .node = probe.node,
                              .outcome = ProbeOutcome::kAnswered});
  h.Advance(milliseconds(900));
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kSuspect) << h.Timeline();
}

TEST(IndirectProbeTest, TheFirstAnswerOfAProberStands) {
  Watched h;
  h.silent = {"n2"};
  h.Advance(milliseconds(2600));
  const Probe probe = h.Take<Probe>("n3").back();
  h.Deliver("n1", ProbeResult{.probe_id = probe.probe_id,
                              .node = probe.node,
                              .outcome = ProbeOutcome::kUnreachable});
  h.Deliver("n1", ProbeResult{.probe_id = probe.probe_id,
                              .node = probe.node,
                              .outcome = ProbeOutcome::kAnswered});
  h.Deliver("n3", ProbeResult{.probe_id = probe.probe_id,
                              .node = probe.node,
                              .outcome = ProbeOutcome::kUnreachable});
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kLost) << h.Timeline();
}

TEST(IndirectProbeTest, ANodeThatWasNotAskedIsNoProber) {
  ControlHarness h;
  const std::vector<std::string> names = {"n1", "n2", "n3", "n4", "n5"};
  for (const std::string& name : names) h.Join(name, {.metrics_port = 9100});
  h.silent = {"n2"};
  h.Advance(milliseconds(2600));
  std::set<std::string> asked;
  std::uint64_t newest = 0;
  for (const WorkerSend& send : h.sends()) {
    const auto* probe = std::get_if<Probe>(&send.message);
    if (probe == nullptr || probe->probe_id < newest) continue;
    if (probe->probe_id > newest) asked.clear();
    newest = probe->probe_id;
    asked.insert(send.node.value);
  }
  ASSERT_EQ(asked.size(), 3u);
  for (const std::string& name : names) {
    if (asked.contains(name) || name == "n2") continue;
    for (std::uint64_t id = 0; id <= newest; ++id)
      for (int i = 0; i < 3; ++i)
        h.Deliver(name, ProbeResult{.probe_id = id,
                                    .node = NodeName{"n2"},
                                    .outcome = ProbeOutcome::kUnreachable});
  }
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kSuspect) << h.Timeline();
}

TEST(IndirectProbeTest, ANodeThatAProberReachesIsLeftAlone) {
  Watched h;
  h.silent = {"n2"};
  for (int i = 0; i < 60; ++i) {
    h.Advance(milliseconds(500));
    h.Prober(ProbeOutcome::kAnswered);
  }
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  EXPECT_EQ(h.Attempt(h.id).generation, 1);
  h.silent.clear();
  h.Join("n2", {.hosted = {h.Hosted("n2", h.id, AttemptState::kRunning)}, .metrics_port = 9100});
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kReady);
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
}

TEST(IndirectProbeTest, AWorkerThatIsGoneIsWaitedForUnlessItsRanksAreGoneToo) {
  Watched h;
  h.Leave("n2");
  for (int i = 0; i < 40; ++i) {
    h.Prober(ProbeOutcome::kRefused);
    h.Advance(milliseconds(500));
  }
  h.Prober(ProbeOutcome::kRefused);
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  h.Report(h.id, 0, TrainerError{.kind = "peer_lost", .message = "connection reset", .step = 12});
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kAborting) << "no need to wait for a cause";
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kNodeLost);
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kSuspect) << "to others it may still be there";
  h.ParkedOn("n1", h.id);
  EXPECT_EQ(h.Attempt(h.id).nodes[1].value, "n3");
}

TEST(IndirectProbeTest, AFrozenHostThatStillTakesConnectionsIsLostWithinAMinute) {
  Watched h;
  h.silent = {"n2"};
  for (int i = 0; i < 100; ++i) {
    h.Advance(milliseconds(500));
    h.Prober(ProbeOutcome::kSilent);
  }
  EXPECT_EQ(h.State(h.id), JobState::kRunning)
      << "its ranks may be well: only the worker is stopped";
  for (int i = 0; i < 30; ++i) {
    h.Advance(milliseconds(500));
    h.Prober(ProbeOutcome::kSilent);
  }
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kLost);
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kNodeLost);
  h.ParkedOn("n1", h.id);
  EXPECT_EQ(h.Attempt(h.id).nodes[1].value, "n3");
}

TEST(IndirectProbeTest, AFrozenHostIsLostToAJobThatLostAPeerThereWithinSeconds) {
  Watched h;
  h.silent = {"n2"};
  h.Advance(milliseconds(1600));
  h.Report(h.id, 0, TrainerError{.kind = "peer_lost", .message = "connection reset", .step = 12});
  for (int i = 0; i < 4; ++i) {
    h.Advance(milliseconds(500));
    h.Prober(ProbeOutcome::kSilent);
  }
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kSuspect);
  h.ParkedOn("n1", h.id);
  EXPECT_EQ(h.Attempt(h.id).nodes[1].value, "n3");
}

TEST(IndirectProbeTest, ANodeThatWasSilentThroughAnAbortDoesNotKeepTheJobFromShrinking) {
  Watched h("nodes: 3, ranks_per_node: 1, min_nodes: 2");
  h.silent = {"n2"};
  h.Advance(milliseconds(1600));
  h.Exited(h.id, 0, {0, 9});
  h.ParkedOn("n1", h.id);
  h.ParkedOn("n3", h.id);
  // A host answers at its address, so the coordinator waits for the node itself.
  for (int i = 0; i < 70; ++i) {
    h.Advance(milliseconds(500));
    h.Prober(ProbeOutcome::kAnswered);
  }
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kSuspect);
  EXPECT_EQ(h.Attempt(h.id).generation, 2) << h.Timeline();
  EXPECT_EQ(h.Attempt(h.id).nodes.size(), 2u);
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kShrink);
}

TEST(IndirectProbeTest, ARefusalAfterTheSymptomDecidesAtOnce) {
  Watched h;
  h.Report(h.id, 0, Parked{12});
  h.Leave("n2");
  h.Prober(ProbeOutcome::kRefused);
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kNodeLost);
}

TEST(IndirectProbeTest, ASymptomThatAnExitExplainsCostsNoNode) {
  Watched h;
  h.Exited(h.id, 0, {0, 9});
  h.Leave("n2");
  h.Prober(ProbeOutcome::kRefused);
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kRankKilled);
  EXPECT_EQ(h.Node("n2").slots_used, 1) << "its ranks may still be there";
}

TEST(IndirectProbeTest, WhereAllAreSilentNoNodeIsLost) {
  Watched h;
  h.silent = {"n1", "n2", "n3"};
  h.Advance(seconds(120));
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  for (const NodeView& node : h.controller().Nodes()) {
    EXPECT_EQ(node.record->state, NodeState::kSuspect);
  }
}

// The coordinator's own network was away for longer than a lease.
TEST(IndirectProbeTest, TheFirstNodeBackProbesTheOthers) {
  Watched h;
  const HostedGeneration n1 = h.Hosted("n1", h.id, AttemptState::kRunning);
  h.silent = {"n1", "n2", "n3"};
  h.Advance(seconds(30));
  h.Forget();
  h.silent.erase("n1");
  h.Join("n1", {.hosted = {n1}, .metrics_port = 9100});
  for (int i = 0; i < 4; ++i) {
    h.Advance(milliseconds(500));
    h.Prober(ProbeOutcome::kAnswered);
  }
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kSuspect) << h.Timeline();
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  // One that is really gone is still detected.
  for (int i = 0; i < 4; ++i) {
    h.Advance(milliseconds(500));
    h.Prober(ProbeOutcome::kUnreachable);
  }
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kLost) << h.Timeline();
}

TEST(IndirectProbeTest, ACoordinatorThatOversleptSuspectsNoNode) {
  Watched h;
  h.Oversleep(seconds(30));
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kReady) << h.Timeline();
  h.Advance(seconds(1));
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
}

TEST(IndirectProbeTest, AMessageTakesASuspicionBack) {
  Watched h;
  h.silent = {"n2"};
  h.Advance(milliseconds(1600));
  h.Deliver("n2", Heartbeat{});
  EXPECT_EQ(h.Node("n2").record->state, NodeState::kReady);
  h.silent.clear();
  h.Prober(ProbeOutcome::kUnreachable);  // late answers about an older silence
  h.Advance(seconds(5));
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
}

}  // namespace
}  // namespace muster
