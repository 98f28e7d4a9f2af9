// Scenarios of spares that jobs share, and of preemptible jobs to which they are lent.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kGpu[] = ", device: cuda";

// A job of two nodes, one rank each, that shares a spare.
std::string Guarded(const std::string& name, const std::string& resources = "") {
  std::string yaml = TrainYaml(name);
  const std::string old = "nodes: 2, ";
  return yaml.replace(yaml.find(old), old.size(),
                      "nodes: 2, spares: 1, share_spares: true" + resources + ", ");
}

std::string Preemptible(const std::string& name, const std::string& resources = "") {
  std::string yaml = TrainYaml(name, "preemptible: true\n");
  const std::string old = "nodes: 2, ";
  return yaml.replace(yaml.find(old), old.size(), "nodes: 1" + resources + ", ");
}

struct SharedSpares : ControlHarness {
  void JoinNodes(int count, int slots = 1, int gpus = 0) {
    for (int i = 1; i <= count; ++i) {
      const std::string name = "n" + std::to_string(i);
      Join(name, {.slots = slots, .metrics_port = 9100, .gpus = gpus});
    }
  }
  JobId RunGuarded(const std::string& name, const std::string& resources = "") {
    const JobId id = Submit(Guarded(name, resources));
    RunTo(id, 12);
    for (const NodeName& spare : Attempt(id).spares) PreparedOn(spare.value, id);
    Forget();
    return id;
  }
  // The node fails without its worker: its ranks are killed, and nothing of the job is placed
  // there.
  void LoseTo(const JobId& id, const std::string& node) {
    Leave(node);
    for (int i = 0; i < 6; ++i) {
      Advance(milliseconds(500));
      const std::vector<WorkerSend> asked = sends();
      for (const WorkerSend& send : asked)
        if (const auto* probe = std::get_if<Probe>(&send.message))
          DeliverOn(send.session, ProbeResult{.probe_id = probe->probe_id,
                                              .node = probe->node,
                                              .outcome = ProbeOutcome::kUnreachable});
    }
    ASSERT_EQ(Attempt(id).state, AttemptState::kAborting) << Timeline();
  }
  // What is left of the gang has parked, and its spare's standby is kept.
  void Park(const JobId& id, const std::string& survivor, const std::string& spare) {
    ParkedOn(survivor, id);
    Deliver(spare, Quiesced{.job = id, .generation = Attempt(id).generation, .standbys = 1});
  }
  std::vector<NodeName> Spares(const JobId& id) const { return Attempt(id).spares; }
};

struct Lent : SharedSpares {
  explicit Lent(const std::string& resources = "", int gpus = 0) {
    JoinNodes(3, 1, gpus);
    job = RunGuarded("guarded", resources);
    borrower = Submit(Preemptible("filler", resources));
    RunTo(borrower, 5);
    Forget();
  }
  void Lose() {
    LoseTo(job, "n2");
    Park(job, "n1", "n3");
  }
  bool IsThere(const JobId& id, const std::string& node) const {
    return std::ranges::count(Attempt(id).nodes, NodeName{node}) > 0 &&
           Attempt(id).state != AttemptState::kEnded;
  }
  JobId job, borrower;
};

// --- shared ---

TEST(SharedSpare, OneNodeIsTheSpareOfTwoJobsAndIsHeldOnce) {
  SharedSpares c;
  c.JoinNodes(6);
  const JobId a = c.RunGuarded("a");
  const JobId b = c.RunGuarded("b");
  EXPECT_THAT(c.Spares(a), ElementsAre(NodeName{"n3"}));
  EXPECT_THAT(c.Spares(b), ElementsAre(NodeName{"n3"})) << c.Timeline();
  EXPECT_EQ(c.Node("n3").slots_used, 1);
  EXPECT_EQ(c.State(c.Submit(CommandYaml("other"))), JobState::kQueued)
      << "one node is free beside what they have";
}

TEST(SharedSpare, OneThatIsDedicatedIsSharedWithNobody) {
  SharedSpares c;
  c.JoinNodes(6);
  const JobId a = c.RunGuarded("a");
  std::string own = Guarded("own");
  const std::string shared = ", share_spares: true";
  own.erase(own.find(shared), shared.size());
  const JobId b = c.Submit(own);
  EXPECT_THAT(c.Spares(a), ElementsAre(NodeName{"n3"}));
  EXPECT_THAT(c.Spares(b), ElementsAre(NodeName{"n6"}));
}

TEST(SharedSpare, ItHoldsTheLargestOfWhatItsJobsNeed) {
  SharedSpares c;
  c.JoinNodes(3, /*slots=*/8);
  const auto ranks = [](std::string yaml, int count) {
    const std::string one = "ranks_per_node: 1";
    return yaml.replace(yaml.find(one), one.size(), "ranks_per_node: " + std::to_string(count));
  };
  const JobId a = c.Submit(ranks(Guarded("a"), 2));
  const JobId b = c.Submit(ranks(Guarded("b"), 5));
  ASSERT_THAT(c.Spares(a), ElementsAre(NodeName{"n3"}));
  ASSERT_THAT(c.Spares(b), ElementsAre(NodeName{"n3"})) << c.Timeline();
  EXPECT_EQ(c.Node("n3").slots_used, 5);
  EXPECT_EQ(c.Node("n1").slots_used, 7);
}

TEST(SharedSpare, ItsGuardianComesUpWithoutDevicesAndGetsThemWithTheRank) {
  SharedSpares c;
  c.JoinNodes(5, /*slots=*/1, /*gpus=*/1);
  const JobId a = c.Submit(Guarded("a", kGpu));
  const Prepare prepare = c.Take<Prepare>("n3").at(0);
  EXPECT_TRUE(prepare.spare);
  EXPECT_THAT(prepare.devices, IsEmpty());
  EXPECT_EQ(prepare.standbys, 1);
  c.RunTo(a, 12);
  c.PreparedOn("n3", a);
  c.LoseTo(a, "n2");
  c.Park(a, "n1", "n3");
  ASSERT_EQ(c.Attempt(a).generation, 2) << c.Timeline();
  EXPECT_THAT(c.Take<Prepare>("n3").back().devices, ElementsAre("n3-gpu0"));
}

TEST(SharedSpare, OneJobTakesItAndTheOtherLooksForAnother) {
  SharedSpares c;
  c.JoinNodes(5);
  const JobId a = c.RunGuarded("a");
  const JobId b = c.RunGuarded("b");
  ASSERT_THAT(c.Spares(b), ElementsAre(NodeName{"n3"})) << c.Timeline();
  c.LoseTo(a, "n2");
  c.Park(a, "n1", "n3");
  EXPECT_THAT(c.Attempt(a).nodes, ElementsAre(NodeName{"n1"}, NodeName{"n3"})) << c.Timeline();
  EXPECT_EQ(c.Attempt(a).tier, Tier::kSpare);
  EXPECT_TRUE(c.HasEvent(b, "spare_dropped", "job " + a.value + " (a) has taken it"));
  EXPECT_EQ(c.Take<Release>("n3").size(), 1u) << "of job b";
  EXPECT_THAT(c.Spares(b), IsEmpty());
  EXPECT_EQ(c.State(b), JobState::kRunning);
  c.Deliver("n3", Released{b});
  EXPECT_EQ(c.Node("n3").slots_used, 1);
  c.StartAll(a);
  c.TrainFrom(a, 12);
  c.Join("n6");
  EXPECT_THAT(c.Spares(b), ElementsAre(NodeName{"n6"})) << c.Timeline();
  EXPECT_THAT(c.Spares(a), ElementsAre(NodeName{"n6"})) << c.Timeline();
}

TEST(SharedSpare, TwoJobsThatLoseANodeAtOnceGetItOnce) {
  SharedSpares c;
  c.JoinNodes(5);
  const JobId a = c.RunGuarded("a");
  const JobId b = c.RunGuarded("b");
  c.Leave("n5");
  c.LoseTo(a, "n2");
  ASSERT_EQ(c.Attempt(b).state, AttemptState::kAborting) << c.Timeline();
  c.Park(b, "n4", "n3");
  c.Park(a, "n1", "n3");
  EXPECT_THAT(c.Attempt(b).nodes, ElementsAre(NodeName{"n4"}, NodeName{"n3"})) << c.Timeline();
  EXPECT_EQ(c.Attempt(a).generation, 1);
  EXPECT_EQ(c.State(a), JobState::kRecovering);
  EXPECT_EQ(c.Node("n3").slots_used, 1);
}

// Where there is room for both, the other keeps its spare.
TEST(SharedSpare, OfALargeNodeOneJobTakesAPart) {
  SharedSpares c;
  c.JoinNodes(3, /*slots=*/2, /*gpus=*/2);
  const JobId a = c.RunGuarded("a", kGpu);
  const JobId b = c.RunGuarded("b", kGpu);
  ASSERT_THAT(c.Spares(b), ElementsAre(NodeName{"n3"})) << c.Timeline();
  c.Deliver(
      "n2",
      NodeNotice{
          .kind = NodeNoticeKind::kXid, .detail = "Xid 79", .devices = {"n2-gpu0"}, .fatal = true});
  c.ParkedOn("n1", a);
  c.QuiescedOn("n2", a);
  c.Deliver("n3", Quiesced{.job = a, .generation = 1, .standbys = 1});
  ASSERT_THAT(c.Attempt(a).nodes, ElementsAre(NodeName{"n1"}, NodeName{"n3"})) << c.Timeline();
  EXPECT_THAT(c.Spares(b), ElementsAre(NodeName{"n3"})) << c.Timeline();
  EXPECT_NE(c.Attempt(a).node_devices.at(1), c.Attempt(b).spare_devices.at(0));
  EXPECT_EQ(c.CountEvents(b, "spare_dropped"), 0);
  EXPECT_EQ(c.Node("n3").slots_used, 2);
}

TEST(SharedSpare, WhatHasSurvivedSigkillThereLeavesNoSpare) {
  Lent c;
  c.Exited(c.borrower, 0, {0, 0});
  const std::int64_t stuck = c.Attempt(c.borrower).ranks[0].pid;
  c.Deliver("n3", Quiesced{.job = c.borrower, .generation = 1, .unkillable_pids = {stuck}});
  EXPECT_THAT(c.Spares(c.job), IsEmpty()) << c.Timeline();
  EXPECT_TRUE(c.HasEvent(c.job, "spare_dropped", "survived SIGKILL")) << c.Timeline();
}

TEST(SharedSpare, ARestartedCoordinatorHoldsItOnce) {
  SharedSpares c;
  c.JoinNodes(5);
  const JobId a = c.RunGuarded("a");
  const JobId b = c.RunGuarded("b");
  c.Restart();
  EXPECT_EQ(c.Node("n3").slots_used, 1);
  EXPECT_THAT(c.Spares(a), ElementsAre(NodeName{"n3"}));
  EXPECT_THAT(c.Spares(b), ElementsAre(NodeName{"n3"}));
}

TEST(SharedSpare, ItCountsForNoQueue) {
  SharedSpares c;
  c.JoinNodes(3);
  c.ApplyQueues("queues: {default: {ceiling: {slots: 2}}}\n", 0);
  const JobId a = c.RunGuarded("a");
  EXPECT_THAT(c.Spares(a), ElementsAre(NodeName{"n3"})) << c.Timeline();
  EXPECT_EQ(c.controller().Queues().queues.at(0).used.slots, 2);
}

// --- lent ---

TEST(LentSpare, OnlyAPreemptibleJobGetsItAndItSaysSoAtItsStart) {
  Lent c;
  EXPECT_THAT(c.Attempt(c.borrower).nodes, ElementsAre(NodeName{"n3"})) << c.Timeline();
  EXPECT_THAT(c.Attempt(c.borrower).lent, ElementsAre(NodeName{"n3"}));
  EXPECT_TRUE(c.HasEvent(c.borrower, "lent", "n3")) << c.Timeline();
  EXPECT_THAT(c.Spares(c.job), ElementsAre(NodeName{"n3"}));
  EXPECT_EQ(c.Node("n3").slots_used, 1);
  EXPECT_EQ(c.State(c.Submit(CommandYaml("other"))), JobState::kQueued);
  EXPECT_EQ(c.State(c.Submit(Preemptible("second"))), JobState::kQueued) << "there is one slot";
}

TEST(LentSpare, ItIsTakenAsSoonAsTheBorrowerHasSavedItsState) {
  Lent c(kGpu, 1);
  c.Lose();
  EXPECT_EQ(c.State(c.borrower), JobState::kStopping) << c.Timeline();
  EXPECT_EQ(c.Take<Stop>("n3").size(), 1u) << "it saves its state first";
  EXPECT_TRUE(c.HasEvent(c.borrower, "preempted", "guarded")) << c.Timeline();
  EXPECT_TRUE(c.HasEvent(c.job, "reclaims", "filler")) << c.Timeline();
  EXPECT_EQ(c.Attempt(c.job).generation, 1);
  EXPECT_EQ(c.State(c.job), JobState::kRecovering);
  const Explanation why = Answer(*c.controller().AskWhy(c.job, c.now()));
  ASSERT_EQ(why.causes.size(), 2u) << "and that n2 is lost";
  EXPECT_EQ(why.causes[0].code, WaitCode::kLent);
  EXPECT_THAT(why.causes[0].names, ElementsAre(NodeName{"n3"}));
  EXPECT_EQ(why.causes[0].job, c.borrower);
  c.Advance(milliseconds(300));
  c.Checkpoint(c.borrower, 6);
  c.Manifest(c.borrower, c.Directory(c.borrower, 6));
  c.Exited(c.borrower, 0, {0, 0});
  c.QuiescedOn("n3", c.borrower);
  EXPECT_EQ(c.State(c.borrower), JobState::kQueued) << c.Timeline();
  EXPECT_TRUE(c.HasEvent(c.borrower, "queued", "it will go on at step 6")) << c.Timeline();
  ASSERT_EQ(c.Attempt(c.job).generation, 2) << c.Timeline();
  EXPECT_EQ(c.Attempt(c.job).tier, Tier::kSpare);
  EXPECT_THAT(c.Attempt(c.job).nodes, ElementsAre(NodeName{"n1"}, NodeName{"n3"}));
  EXPECT_THAT(c.Take<Prepare>("n3").back().devices, ElementsAre("n3-gpu0"));
}

TEST(LentSpare, WhatHasNotSavedInTimeIsEnded) {
  Lent c;
  c.Lose();
  c.Forget();
  c.Advance(milliseconds(1400));
  EXPECT_TRUE(c.Take<Abort>("n3").empty());
  c.Advance(milliseconds(200));
  EXPECT_EQ(c.Take<Abort>("n3").at(0).grace_seconds, 0) << c.Timeline();
  EXPECT_TRUE(c.Take<Abort>("n1").empty()) << "the survivors of the other stay parked";
  c.QuiescedOn("n3", c.borrower);
  EXPECT_EQ(c.State(c.borrower), JobState::kQueued);
  EXPECT_EQ(c.Attempt(c.job).tier, Tier::kSpare) << c.Timeline();
}

// Neither of the two gangs has a process that the other's node counts on.
TEST(LentSpare, ABorrowerThatIsStillComingUpLeavesToo) {
  SharedSpares c;
  c.JoinNodes(3);
  const JobId job = c.RunGuarded("guarded");
  const JobId borrower = c.Submit(Preemptible("filler"));
  ASSERT_EQ(c.State(borrower), JobState::kStarting);
  c.LoseTo(job, "n2");
  c.Park(job, "n1", "n3");
  EXPECT_EQ(c.Attempt(borrower).state, AttemptState::kAborting) << c.Timeline();
  c.QuiescedOn("n3", borrower);
  EXPECT_EQ(c.Attempt(job).tier, Tier::kSpare) << c.Timeline();
}

TEST(LentSpare, ARestartedCoordinatorGoesOnWithIt) {
  Lent c;
  c.Lose();
  c.Restart();
  const std::int64_t by = c.Job(c.borrower).record->stop_by_unix_ms;
  EXPECT_LE(by - c.now().unix_ms, 1500) << "the deadline is the old one";
  ControlHarness::NodeOptions n1{.metrics_port = 9100}, n3{.metrics_port = 9100};
  HostedGeneration parked = c.Hosted("n1", c.job, AttemptState::kRunning);
  parked.quiesced = true;
  parked.parked_ranks = {0};
  n1.hosted = {parked};
  n3.hosted = {c.Hosted("n3", c.borrower, AttemptState::kRunning)};
  c.Join("n3", n3);
  c.Join("n1", n1);
  EXPECT_EQ(c.State(c.borrower), JobState::kStopping) << c.Timeline();
  EXPECT_EQ(c.CountEvents(c.borrower, "preempted"), 1);
  c.Advance(seconds(2));
  c.QuiescedOn("n3", c.borrower);
  EXPECT_EQ(c.State(c.borrower), JobState::kQueued) << c.Timeline();
  EXPECT_TRUE(c.IsThere(c.job, "n3")) << c.Timeline();
}

TEST(LentSpare, ABorrowerKeepsItWhenTheGuardedJobIsOver) {
  Lent c;
  c.FinishAll(c.job);
  c.QuiescedOn("n3", c.job);
  ASSERT_EQ(c.State(c.job), JobState::kSucceeded) << c.Timeline();
  EXPECT_EQ(c.State(c.borrower), JobState::kRunning);
  EXPECT_EQ(c.Node("n3").slots_used, 1);
  const JobId next = c.RunGuarded("next");
  EXPECT_THAT(c.Spares(next), ElementsAre(NodeName{"n3"})) << c.Timeline();
}

// A rank that fails is nothing that its spare is needed for.
TEST(LentSpare, AFaultThatNeedsNoNodeLeavesTheBorrowerAlone) {
  Lent c;
  c.Exited(c.job, 1, {0, 9});
  c.ParkedOn("n1", c.job);
  c.QuiescedOn("n2", c.job);
  c.Deliver("n3", Quiesced{.job = c.job, .generation = 1, .standbys = 1});
  EXPECT_EQ(c.Attempt(c.job).tier, Tier::kInPlace) << c.Timeline();
  EXPECT_EQ(c.State(c.borrower), JobState::kRunning);
  EXPECT_THAT(c.Spares(c.job), ElementsAre(NodeName{"n3"}));
}

TEST(LentSpare, ARecoveringBorrowerStaysAndIsMarkedAgain) {
  Lent c;
  c.Exited(c.borrower, 0, {0, 9});
  c.QuiescedOn("n3", c.borrower);
  ASSERT_EQ(c.Attempt(c.borrower).generation, 2) << c.Timeline();
  EXPECT_THAT(c.Attempt(c.borrower).nodes, ElementsAre(NodeName{"n3"}));
  EXPECT_THAT(c.Attempt(c.borrower).lent, ElementsAre(NodeName{"n3"}));
}

TEST(LentSpare, AFreeNodeIsTakenRatherThanALentOne) {
  Lent c;
  c.Join("n4", {.metrics_port = 9100});
  c.Lose();
  EXPECT_THAT(c.Attempt(c.job).nodes, ElementsAre(NodeName{"n1"}, NodeName{"n4"})) << c.Timeline();
  EXPECT_EQ(c.State(c.borrower), JobState::kRunning);
}

}  // namespace
}  // namespace muster
