// Scenarios of gangs that change their nodes: spares, fewer ranks, more ranks again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Yaml(const std::string& resources, const std::string& more = "") {
  std::string yaml = TrainYaml("tiny", more);
  const std::string old = "nodes: 2, ranks_per_node: 1";
  return yaml.replace(yaml.find(old), old.size(), resources);
}

struct LosingNodes : ControlHarness {
  // All its processes are gone, its link with them.
  void Lose(const std::string& node) {
    Leave(node);
    for (int i = 0; i < 6; ++i) {
      Advance(milliseconds(500));
      const std::vector<WorkerSend> asked = sends();
      for (const WorkerSend& send : asked) {
        const auto* probe = std::get_if<Probe>(&send.message);
        if (probe == nullptr) continue;
        DeliverOn(send.session, ProbeResult{.probe_id = probe->probe_id,
                                            .node = probe->node,
                                            .outcome = ProbeOutcome::kUnreachable});
      }
    }
    ASSERT_EQ(Node(node).record->state, NodeState::kLost) << Timeline();
  }
};

struct Elastic : LosingNodes {
  Elastic(std::initializer_list<const char*> nodes, const std::string& resources,
          const std::string& more = "") {
    for (const char* node : nodes) Join(node, {.metrics_port = 9100});
    id = Submit(Yaml(resources, more));
    RunTo(id, 12);
    Forget();
  }
  std::vector<std::string> Nodes() const {
    std::vector<std::string> names;
    for (const NodeName& node : Attempt(id).nodes) names.push_back(node.value);
    return names;
  }
  JobId id;
};

constexpr char kWithSpare[] = "nodes: 2, spares: 1, ranks_per_node: 1";
constexpr char kElastic[] = "nodes: 2, min_nodes: 1, ranks_per_node: 1";

// --- failure domains ---

struct Racks : LosingNodes {
  Racks(const std::string& resources, std::initializer_list<const char*> racks) {
    int number = 0;
    for (const char* rack : racks) {
      Join("n" + std::to_string(++number), {.metrics_port = 9100, .failure_domain = rack});
    }
    id = Submit(Yaml(resources));
    PrepareAll(id);
  }
  std::vector<int> RingOn(const std::string& node) {
    const std::vector<Launch> launches = Take<Launch>(node);
    return launches.empty() ? std::vector<int>() : launches.back().buddy_ring;
  }
  JobId id;
};

TEST(FailureDomainTest, EveryNodeReceivesTheSameRingInWhichDomainsTakeTurns) {
  Racks h("nodes: 4, ranks_per_node: 1", {"a", "a", "b", "b"});
  for (const char* node : {"n1", "n2", "n3", "n4"}) {
    EXPECT_THAT(h.RingOn(node), ElementsAre(0, 2, 1, 3)) << node;
  }
}

TEST(FailureDomainTest, TheRingIsThatOfTheNodesOfTheAttempt) {
  Racks h("nodes: 4, spares: 1, ranks_per_node: 1", {"a", "a", "b", "b", "b", "c"});
  EXPECT_THAT(h.Attempt(h.id).spares, ElementsAre(NodeName{"n6"}));
  h.StartAll(h.id);
  h.TrainFrom(h.id, 1);
  h.Deliver("n6", Prepared{.job = h.id, .generation = 1, .retryable = true});
  h.Forget();
  h.Lose("n2");
  for (const char* node : {"n1", "n3", "n4"}) h.ParkedOn(node, h.id);
  h.Deliver("n6", Quiesced{.job = h.id, .generation = 1});
  h.PrepareAll(h.id);
  EXPECT_EQ(h.Attempt(h.id).nodes.at(1), NodeName{"n6"});
  EXPECT_THAT(h.RingOn("n4"), ElementsAre(2, 0, 3, 1)) << "of a, c, b and b";
}

// --- spares ---

TEST(SpareTest, ASpareIsPreparedWithoutRanksAndItsSlotsAreTaken) {
  ControlHarness h;
  for (const char* node : {"n1", "n2", "n3"}) h.Join(node);
  const JobId id = h.Submit(Yaml(kWithSpare));
  const Prepare prepare = h.Take<Prepare>("n3").at(0);
  EXPECT_TRUE(prepare.spare);
  EXPECT_TRUE(prepare.ranks.empty());
  EXPECT_FALSE(prepare.hosts_master);
  EXPECT_EQ(prepare.standbys, 1);
  EXPECT_EQ(h.Node("n3").slots_used, 1);
  h.PrepareAll(id);
  EXPECT_EQ(h.Take<Launch>("n1").size(), 1u) << "a spare is not waited for";
  EXPECT_TRUE(h.Take<Launch>("n3").empty());
  h.Deliver("n3", Prepared{.job = id, .generation = 1, .retryable = true});
  h.Exited(id, 0, {0, 0});
  h.Exited(id, 1, {0, 0});
  EXPECT_EQ(h.Take<Abort>("n3").size(), 1u);
  h.QuiesceAll(id);
  h.QuiescedOn("n3", id);
  EXPECT_EQ(h.State(id), JobState::kSucceeded);
  EXPECT_EQ(h.Take<Release>("n3").size(), 1u);
}

TEST(SpareTest, TheJobsOwnSpareIsTakenFirst) {
  Elastic h({"n1", "n2", "n3", "n4"}, kWithSpare);
  ASSERT_THAT(h.Attempt(h.id).spares, ElementsAre(NodeName{"n3"}));
  h.Deliver("n3", Prepared{.job = h.id, .generation = 1, .retryable = true});
  h.Lose("n2");
  EXPECT_EQ(h.Take<Abort>("n3").size(), 1u);
  h.ParkedOn("n1", h.id);
  h.Deliver("n3", Quiesced{.job = h.id, .generation = 1});
  EXPECT_THAT(h.Nodes(), ElementsAre("n1", "n3"));
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kSpare);
  EXPECT_THAT(h.Attempt(h.id).spares, ElementsAre(NodeName{"n4"})) << "the next one is held";
}

// Its lease was waited for again after a restart.
TEST(SpareTest, ASpareThatIsLostDuringAnAbortHoldsUpNoRestartedCoordinator) {
  Elastic h({"n1", "n2", "n3"}, kWithSpare);
  ASSERT_THAT(h.Attempt(h.id).spares, ElementsAre(NodeName{"n3"}));
  h.Exited(h.id, 1, {0, 9});
  h.Lose("n3");
  ASSERT_EQ(h.Attempt(h.id).state, AttemptState::kAborting) << h.Timeline();
  h.Restart();
  for (const char* node : {"n1", "n2"}) {
    ControlHarness::NodeOptions options;
    options.hosted = {h.Hosted(node, h.id, AttemptState::kAborting)};
    h.Join(node, options);
    h.QuiescedOn(node, h.id);
  }
  EXPECT_NE(h.Attempt(h.id).generation, 1) << h.Timeline();
}

TEST(SpareTest, TooFewAreReportedAndMadeUpForLater) {
  Elastic h({"n1", "n2"}, kWithSpare);
  EXPECT_TRUE(h.HasEvent(h.id, "spares_missing", "0 of 1 spare nodes found")) << h.Timeline();
  h.Join("n3");
  EXPECT_TRUE(h.Take<Prepare>("n3").at(0).spare);
  EXPECT_TRUE(h.HasEvent(h.id, "spare_added", "n3"));
  EXPECT_EQ(h.Attempt(h.id).generation, 1) << "nothing else happens to the job";
}

TEST(SpareTest, ALostOrBrokenSpareIsNoFaultOfTheJob) {
  Elastic h({"n1", "n2", "n3"}, kWithSpare);
  h.Lose("n3");
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  EXPECT_TRUE(h.Attempt(h.id).spares.empty());
  EXPECT_TRUE(h.HasEvent(h.id, "spare_dropped", "n3"));
  h.Join("n4");
  ASSERT_THAT(h.Attempt(h.id).spares, ElementsAre(NodeName{"n4"}));
  h.Deliver("n4", Prepared{.job = h.id, .generation = 1, .error = "no such model"});
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
}

// It was taken and dropped again in a loop at network speed, with two commits each time.
TEST(SpareTest, ASpareThatCannotRunTheJobIsLeftAloneForAWhile) {
  Elastic h({"n1", "n2", "n3"}, kWithSpare);
  h.Deliver("n3", Prepared{.job = h.id, .generation = 1, .error = "no such model"});
  EXPECT_EQ(h.Take<Release>("n3").size(), 1u) << "it may be taken again in this generation";
  h.Deliver("n3", Released{h.id});
  EXPECT_EQ(h.Node("n3").slots_used, 0);
  EXPECT_TRUE(h.Take<Prepare>("n3").empty());
  EXPECT_TRUE(h.Attempt(h.id).spares.empty());
  h.Advance(seconds(10));
  EXPECT_EQ(h.Take<Prepare>("n3").size(), 1u);
}

TEST(SpareTest, ASpareThatReconnectsIsPreparedAgain) {
  Elastic h({"n1", "n2", "n3"}, kWithSpare);
  h.Deliver("n3", Prepared{.job = h.id, .generation = 1, .retryable = true});
  h.Leave("n3");
  h.Join("n3", {.instance = "second", .metrics_port = 9100});
  EXPECT_EQ(h.Take<Prepare>("n3").size(), 1u);
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
}

TEST(SpareTest, ASilentSpareHoldsNoRecoveryUp) {
  Elastic h({"n1", "n2", "n3"}, kWithSpare);
  h.Leave("n3");
  h.Exited(h.id, 1, {0, 9});
  h.ParkAll(h.id);
  EXPECT_EQ(h.Attempt(h.id).generation, 2);
}

// --- fewer ranks ---

TEST(ShrinkTest, WithoutRoomElsewhereTheGangGoesOnSmaller) {
  Elastic h({"n1", "n2"}, kElastic);
  h.Lose("n2");
  h.ParkedOn("n1", h.id);
  EXPECT_EQ(h.Attempt(h.id).generation, 2);
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kShrink);
  EXPECT_EQ(h.Job(h.id).record->world_size, 1);
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
  h.PrepareAll(h.id);
  const Launch launch = h.Take<Launch>("n1").at(0);
  EXPECT_EQ(launch.world_size, 1);
  EXPECT_EQ(launch.node_count, 1);
  h.Started(h.id, 0);
  h.TrainFrom(h.id, 12);
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  h.Checkpoint(h.id, 20);
  EXPECT_EQ(h.Job(h.id).record->committed_step, 20) << "one shard makes it whole";
  EXPECT_EQ(h.Job(h.id).checkpoints->back().world_size, 1);
  h.FinishAll(h.id);
  h.Manifest(h.id, h.Directory(h.id, 20));
  EXPECT_EQ(h.State(h.id), JobState::kSucceeded);
}

TEST(ShrinkTest, TheFaultIsCountedFromTheNodesLastMessage) {
  Elastic h({"n1", "n2"}, kElastic);
  h.Lose("n2");
  h.ParkedOn("n1", h.id);
  const double detect = h.Attempt(h.id).seconds.detect;
  EXPECT_GE(detect, 2.5) << "it was silent for that long before it was judged";
  EXPECT_LE(detect, 4) << "and was heard of shortly before";
}

TEST(ShrinkTest, WhatBrokeBeforeTheNodeWasLostIsTheCause) {
  Elastic h({"n1", "n2"}, kElastic);
  h.Exited(h.id, 0, {0, 11});
  h.Advance(milliseconds(100));
  h.Lose("n2");
  h.ParkedOn("n1", h.id);
  EXPECT_EQ(h.Job(h.id).attempts->at(0).cause_kind, CauseKind::kRankKilled);
}

TEST(ShrinkTest, RankNumbersOfANodeThatIsLeftMayChange) {
  Elastic h({"n1", "n2"}, kElastic);
  h.Lose("n1");
  h.ParkedOn("n2", h.id);
  EXPECT_THAT(h.Nodes(), ElementsAre("n2"));
  EXPECT_TRUE(h.Take<Prepare>("n2").at(0).hosts_master);
  EXPECT_EQ(h.Attempt(h.id).ranks.at(0).node.value, "n2");
}

TEST(ShrinkTest, AJobStartsWhole) {
  ControlHarness h;
  h.Join("n1");
  const JobId id = h.Submit(Yaml(kElastic));
  EXPECT_EQ(h.State(id), JobState::kQueued);
}

TEST(ShrinkTest, BelowItsLeastTheJobWaits) {
  Elastic h({"n1", "n2"}, "nodes: 2, ranks_per_node: 1");
  h.Lose("n2");
  h.ParkedOn("n1", h.id);
  EXPECT_EQ(h.Attempt(h.id).generation, 1);
  EXPECT_EQ(h.State(h.id), JobState::kRecovering);
}

TEST(ShrinkTest, ANodeThatMayStillComeBackAfterARestartIsWaitedFor) {
  Elastic h({"n1", "n2"}, kElastic);
  h.Exited(h.id, 1, {0, 9});
  for (int i = 0; i < 2; ++i) {  // a back-off, in which the coordinator is killed
    h.ParkAll(h.id);
    h.StartAll(h.id);
    h.TrainFrom(h.id, 3);
    h.Exited(h.id, i, {0, 9});
  }
  h.ParkAll(h.id);
  ASSERT_EQ(h.Attempt(h.id).state, AttemptState::kEnded) << h.Timeline();
  h.Restart();
  h.Join("n1", {.metrics_port = 9100});
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kEnded);
  h.Join("n2", {.metrics_port = 9100});
  EXPECT_EQ(h.Nodes().size(), 2u);
}

// --- nodes that are left ---

TEST(FormerNodeTest, IsReleasedWhenTheGangWorksWithoutIt) {
  Elastic h({"n1", "n2", "n3"}, "nodes: 2, ranks_per_node: 1");
  h.Deliver("n2",
            NodeNotice{
                .kind = NodeNoticeKind::kXid, .detail = "Xid 79", .devices = {"0"}, .fatal = true});
  h.ParkedOn("n1", h.id);
  h.QuiescedOn("n2", h.id);
  EXPECT_THAT(h.Nodes(), ElementsAre("n1", "n3"));
  h.StartAll(h.id);
  EXPECT_TRUE(h.Take<Release>("n2").empty()) << "its snapshots may still be asked for";
  h.TrainFrom(h.id, 12);
  EXPECT_EQ(h.Take<Release>("n2").size(), 1u);
  EXPECT_TRUE(h.Take<Release>("n1").empty());
  EXPECT_TRUE(h.Take<Release>("n3").empty());
  h.Deliver("n2", Released{h.id});
  EXPECT_THAT(h.Job(h.id).record->pending_release, ElementsAre(NodeName{"n1"}, NodeName{"n3"}));
}

TEST(FormerNodeTest, OneThatComesBackLateIsReleasedAndItsSlotsWaitForThat) {
  Elastic h({"n1", "n2", "n3"}, "nodes: 2, ranks_per_node: 1");
  const HostedGeneration hosted = h.Hosted("n2", h.id, AttemptState::kRunning);
  h.Lose("n2");
  h.ParkedOn("n1", h.id);
  h.StartAll(h.id);
  h.TrainFrom(h.id, 12);
  h.Forget();
  h.Join("n2", {.hosted = {hosted}});
  EXPECT_EQ(h.Take<Release>("n2").size(), 1u);
  EXPECT_EQ(h.Node("n2").slots_used, 1);
  h.Deliver("n2", Released{h.id});
  EXPECT_EQ(h.Node("n2").slots_used, 0);
}

TEST(FormerNodeTest, WhatItsHelloDoesNotNameHoldsItsSlotsToo) {
  Elastic h({"n1", "n2", "n3"}, "nodes: 2, ranks_per_node: 1");
  // Prepared for a newer generation, with a process parked since the one before.
  HostedGeneration hosted = h.Hosted("n2", h.id, AttemptState::kLaunching);
  h.Lose("n2");
  h.ParkedOn("n1", h.id);
  h.StartAll(h.id);
  h.Join("n2", {.hosted = {hosted}});
  EXPECT_EQ(h.Take<Abort>("n2").size(), 1u);
  EXPECT_EQ(h.Node("n2").slots_used, 1);
  h.Deliver("n2", Quiesced{.job = h.id, .generation = hosted.generation});
  EXPECT_EQ(h.Node("n2").slots_used, 0);
}

// --- more ranks ---

struct Shrunk : Elastic {
  Shrunk() : Elastic({"n1", "n2"}, kElastic) {
    Lose("n2");
    ParkedOn("n1", id);
    StartAll(id);
    TrainFrom(id, 12);
    Forget();
  }
};

TEST(GrowTest, ANodeThatReturnsIsTakenAfterAWhileAndEveryProcessIsParked) {
  Shrunk h;
  const int charged = h.Job(h.id).record->attempts_without_progress;
  h.Join("n2", {.metrics_port = 9100});
  h.Advance(milliseconds(2900));
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  h.Advance(milliseconds(200));
  EXPECT_DOUBLE_EQ(h.Take<Abort>("n1").at(0).park_seconds, 1);
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kRegrouped);
  h.Report(h.id, 0,
           TrainerError{.kind = "peer_lost", .message = "aborted", .step = 13});  // not an event
  h.ParkedOn("n1", h.id);
  EXPECT_THAT(h.Nodes(), ElementsAre("n1", "n2"));
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kGrow);
  EXPECT_EQ(h.Job(h.id).attempts->at(1).cause_kind, CauseKind::kRegrouped);
  EXPECT_EQ(h.Job(h.id).record->attempts_without_progress, charged) << "that was no fault";
  EXPECT_EQ(h.Job(h.id).record->world_size, 2);
}

TEST(GrowTest, WithoutSnapshotsTheGangSavesItsStateFirst) {
  Elastic h({"n1", "n2"}, kElastic, "  snapshot: {every: 0}\n");
  h.Lose("n2");
  h.QuiescedOn("n1", h.id);
  h.StartAll(h.id);
  h.TrainFrom(h.id, 12);
  h.Forget();
  h.Join("n2", {.metrics_port = 9100});
  h.Advance(milliseconds(3100));
  EXPECT_EQ(h.Take<Stop>("n1").size(), 1u) << h.Timeline();
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  h.Checkpoint(h.id, 14);
  h.Exited(h.id, 0, {0, 0});
  h.QuiescedOn("n1", h.id);
  EXPECT_THAT(h.Nodes(), ElementsAre("n1", "n2"));
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kGrow);
}

TEST(GrowTest, NotAgainWithinAMinute) {
  Shrunk h;
  h.Join("n2", {.metrics_port = 9100});
  h.Advance(milliseconds(3100));
  h.ParkedOn("n1", h.id);
  h.StartAll(h.id);
  h.TrainFrom(h.id, 13);
  h.Lose("n2");
  h.ParkedOn("n1", h.id);
  h.StartAll(h.id);
  h.TrainFrom(h.id, 13);
  h.Join("n2", {.metrics_port = 9100});
  h.Forget();
  h.Advance(seconds(40));
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  h.Advance(seconds(20));
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
}

TEST(GrowTest, NotWhileItRecovers) {
  Elastic h({"n1", "n2"}, kElastic);
  h.Lose("n2");
  h.ParkedOn("n1", h.id);
  h.Join("n2", {.metrics_port = 9100});
  h.Advance(seconds(8));
  EXPECT_EQ(h.Attempt(h.id).generation, 2);
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kPreparing);
}

TEST(GrowTest, ARestartInBetweenGoesOnWithIt) {
  Shrunk h;
  h.Join("n2", {.metrics_port = 9100});
  h.Advance(milliseconds(3100));
  HostedGeneration parked = h.Hosted("n1", h.id, AttemptState::kRunning);
  parked.quiesced = true;
  parked.parked_ranks = {0};
  h.Restart();
  h.Join("n2", {.metrics_port = 9100});
  h.Join("n1", {.hosted = {parked}, .metrics_port = 9100});
  EXPECT_THAT(h.Nodes(), ElementsAre("n1", "n2"));
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kGrow);
}

}  // namespace
}  // namespace muster
