// Devices of nodes: which job gets which, and when they are free again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Devices = std::vector<std::string>;

// A GPU job of two nodes, a rank and a GPU on each; `resources` in addition.
std::string GpuYaml(const std::string& name, const std::string& resources = "") {
  std::string yaml = TrainYaml(name);
  const std::string ranks = "ranks_per_node: 1";
  return yaml.replace(yaml.find(ranks), ranks.size(), ranks + ", device: cuda" + resources);
}

std::string OnOneNode(std::string yaml) {
  const std::string nodes = "nodes: 2";
  return yaml.replace(yaml.find(nodes), nodes.size(), "nodes: 1");
}

std::string WithRanks(std::string yaml, int ranks) {
  const std::string one = "ranks_per_node: 1";
  return yaml.replace(yaml.find(one), one.size(), "ranks_per_node: " + std::to_string(ranks));
}

class GpuTest : public testing::Test {
 protected:
  void JoinTwo(int gpus) {
    for (const char* node : {"n1", "n2"}) h.Join(node, {.slots = 8, .gpus = gpus});
  }
  const std::vector<Devices>& DevicesOf(const JobId& id) { return h.Attempt(id).node_devices; }
  void Break(const std::string& node, const Devices& devices) {
    h.Deliver(
        node,
        NodeNotice{
            .kind = NodeNoticeKind::kXid, .detail = "Xid 79", .devices = devices, .fatal = true});
  }

  ControlHarness h;
};

TEST_F(GpuTest, TwoJobsOnANodeGetDifferentGpus) {
  JoinTwo(2);
  const JobId first = h.Submit(GpuYaml("first"));
  const JobId second = h.Submit(GpuYaml("second"));
  const JobId third = h.Submit(GpuYaml("third"));
  EXPECT_THAT(DevicesOf(first), ElementsAre(Devices{"n1-gpu0"}, Devices{"n2-gpu0"}));
  EXPECT_THAT(DevicesOf(second), ElementsAre(Devices{"n1-gpu1"}, Devices{"n2-gpu1"}));
  EXPECT_THAT(h.Take<Prepare>("n2").at(1).devices, ElementsAre("n2-gpu1"));
  EXPECT_EQ(h.State(third), JobState::kQueued);
  EXPECT_THAT(h.Job(third).reason(), HasSubstr("2 have too few free GPUs"));
  h.RunTo(first, 5);
  h.FinishAll(first);
  EXPECT_THAT(DevicesOf(third), ElementsAre(Devices{"n1-gpu0"}, Devices{"n2-gpu0"}))
      << h.Timeline();
}

TEST_F(GpuTest, CpuJobsUseTheSlotsThatAGpuJobLeaves) {
  JoinTwo(1);
  h.Submit(GpuYaml("gpu"));
  const JobId cpu = h.Submit(TrainYaml("cpu"));
  EXPECT_EQ(h.State(cpu), JobState::kStarting);
  EXPECT_THAT(DevicesOf(cpu), IsEmpty());
}

TEST_F(GpuTest, AFaultLeavesAJobItsOwnGpus) {
  JoinTwo(3);
  h.Submit(GpuYaml("other"));
  const JobId id = h.Submit(GpuYaml("job"));
  const std::vector<Devices> before = DevicesOf(id);
  h.RunTo(id, 12);
  h.Take<Prepare>("n1");
  h.Exited(id, 1, {0, 9});
  h.ParkedOn("n1", id);
  h.QuiescedOn("n2", id);
  ASSERT_EQ(h.Attempt(id).generation, 2) << h.Timeline();
  EXPECT_EQ(DevicesOf(id), before);
  EXPECT_THAT(h.Take<Prepare>("n1").at(0).devices, ElementsAre("n1-gpu1"));
}

TEST_F(GpuTest, AStuckProcessKeepsItsGpuAlone) {
  JoinTwo(2);
  const JobId first = h.Submit(WithRanks(GpuYaml("first"), 2));
  h.RunTo(first, 5);
  for (int rank = 0; rank < 4; ++rank) h.Exited(first, rank, {0, 0});
  const std::int64_t stuck = h.Attempt(first).ranks[3].pid;
  h.QuiescedOn("n1", first);
  h.Deliver("n2", Quiesced{.job = first, .generation = 1, .unkillable_pids = {stuck}});
  ASSERT_EQ(h.State(first), JobState::kSucceeded) << h.Timeline();
  const JobId wide = h.Submit(WithRanks(GpuYaml("wide"), 2));
  EXPECT_EQ(h.State(wide), JobState::kQueued);
  h.Cancel(wide);
  const JobId narrow = h.Submit(GpuYaml("narrow"));
  EXPECT_THAT(DevicesOf(narrow), ElementsAre(Devices{"n1-gpu0"}, Devices{"n2-gpu0"}));
  h.Deliver("n2", Released{first});
  EXPECT_THAT(DevicesOf(h.Submit(GpuYaml("next"))),
              ElementsAre(Devices{"n1-gpu1"}, Devices{"n2-gpu1"}));
}

TEST_F(GpuTest, AnUnknownJobKeepsTheGpusThatItsGuardianHasLocked) {
  HostedGeneration stray{
      .job = JobId{"0123456789"}, .generation = 4, .launched = true, .devices = {"n1-gpu0"}};
  stray.started.push_back({stray.job, 4, 0, 99});
  h.Join("n1", {.slots = 8, .hosted = {stray}, .gpus = 1});
  h.Join("n2", {.slots = 8, .gpus = 1});
  const JobId id = h.Submit(GpuYaml("gpu"));
  EXPECT_EQ(h.State(id), JobState::kQueued);
  h.Deliver("n1", Released{stray.job});
  EXPECT_EQ(h.State(id), JobState::kStarting);
}

TEST_F(GpuTest, ASpareHoldsItsGpusForItsJob) {
  for (const char* node : {"n1", "n2", "n3"}) h.Join(node, {.slots = 2, .gpus = 1});
  const JobId first = h.Submit(GpuYaml("first", ", spares: 1"));
  EXPECT_THAT(h.Attempt(first).spare_devices, ElementsAre(Devices{"n3-gpu0"}));
  EXPECT_THAT(h.Take<Prepare>("n3").at(0).devices, ElementsAre("n3-gpu0"));
  const JobId second = h.Submit(OnOneNode(GpuYaml("second")));
  EXPECT_EQ(h.State(second), JobState::kQueued);
  h.Drain("n3");
  EXPECT_THAT(h.Attempt(first).spare_devices, IsEmpty());
}

TEST_F(GpuTest, ARestartedCoordinatorKnowsWhoHasWhich) {
  JoinTwo(2);
  const JobId first = h.Submit(GpuYaml("first"));
  h.RunTo(first, 5);
  const HostedGeneration on1 = h.Hosted("n1", first, AttemptState::kRunning);
  const HostedGeneration on2 = h.Hosted("n2", first, AttemptState::kRunning);
  h.Restart();
  h.Join("n1", {.slots = 8, .hosted = {on1}, .gpus = 2});
  h.Join("n2", {.slots = 8, .hosted = {on2}, .gpus = 2});
  EXPECT_THAT(DevicesOf(h.Submit(GpuYaml("second"))),
              ElementsAre(Devices{"n1-gpu1"}, Devices{"n2-gpu1"}));
}

TEST_F(GpuTest, ABrokenGpuTakesItselfOutAndNotItsNode) {
  JoinTwo(3);
  const JobId hit = h.Submit(GpuYaml("hit"));
  const JobId other = h.Submit(GpuYaml("other"));
  h.RunTo(hit, 5);
  h.RunTo(other, 5);
  h.Take<Abort>("n1");
  Break("n1", {"n1-gpu0"});
  EXPECT_EQ(h.Node("n1").record->state, NodeState::kReady);
  const std::vector<Abort> aborts = h.Take<Abort>("n1");
  ASSERT_EQ(aborts.size(), 1u) << "the other job goes on";
  EXPECT_EQ(aborts[0].job, hit);
  EXPECT_THAT(aborts[0].kill_ranks, ElementsAre(0)) << "it may not be kept";
  EXPECT_THAT(h.Timeline(), HasSubstr("no job gets n1-gpu0 of node n1"));
  h.QuiescedOn("n1", hit);
  h.ParkedOn("n2", hit);
  EXPECT_EQ(h.Attempt(hit).cause_kind, CauseKind::kNone);
  EXPECT_THAT(DevicesOf(hit), ElementsAre(Devices{"n1-gpu2"}, Devices{"n2-gpu0"}));
  Break("n1", {"n1-gpu0"});
  EXPECT_THAT(h.Take<Abort>("n1"), IsEmpty()) << "a notice is repeated while it lasts";

  const JobId next = h.Submit(OnOneNode(WithRanks(GpuYaml("next"), 3)));
  EXPECT_EQ(h.State(next), JobState::kQueued);
  h.Undrain("n1");
  h.Cancel(next);
  EXPECT_THAT(DevicesOf(h.Submit(OnOneNode(GpuYaml("last")))), ElementsAre(Devices{"n1-gpu0"}));
}

TEST_F(GpuTest, AGpuThatAJobOfAnotherClusterHasIsNotAllocatedUntilItIsFree) {
  h.Join("n1", {.slots = 8, .gpus = 2});
  const std::string taken = "n1-gpu0 in use elsewhere on this machine, by job 7";
  h.Deliver(
      "n1",
      NodeNotice{.kind = NodeNoticeKind::kDevicesInUse, .detail = taken, .devices = {"n1-gpu0"}});
  const JobId first = h.Submit(OnOneNode(GpuYaml("first")));
  EXPECT_THAT(DevicesOf(first), ElementsAre(Devices{"n1-gpu1"}));
  const JobId second = h.Submit(OnOneNode(GpuYaml("second")));
  EXPECT_EQ(h.State(second), JobState::kQueued) << "and not refused: it fits the node";
  const Explanation why = Answer(*h.controller().AskWhy(second, h.now()));
  const auto elsewhere = std::ranges::find(why.causes, WaitCode::kElsewhere, &WaitCause::code);
  ASSERT_NE(elsewhere, why.causes.end());
  EXPECT_THAT(elsewhere->names, ElementsAre(NodeName{"n1"}));
  EXPECT_EQ(elsewhere->text, taken);
  h.Deliver("n1", NodeNotice{.kind = NodeNoticeKind::kClear});
  EXPECT_THAT(DevicesOf(second), ElementsAre(Devices{"n1-gpu0"})) << h.Timeline();
}

TEST_F(GpuTest, AnErrorOfAGpuThatIsNotKnownMayBeOfAny) {
  JoinTwo(1);
  Break("n1", {"another"});
  EXPECT_EQ(h.Node("n1").record->state, NodeState::kQuarantined);
}

TEST_F(GpuTest, AGpuThatDoesNotAnswerIsNotAllocated) {
  NodeInventory inventory;
  inventory.devices = {{.id = "GPU-1", .fault = "it does not answer"}, {.id = "GPU-2"}};
  h.Join("n1", {.slots = 8, .inventory = inventory});
  const JobId id = h.Submit(OnOneNode(GpuYaml("job")));
  EXPECT_THAT(DevicesOf(id), ElementsAre(Devices{"GPU-2"}));
}

TEST_F(GpuTest, AGpuThatTwoNodesReportIsUsedOnTheFirstOne) {
  NodeInventory inventory;
  inventory.devices = {{.id = "GPU-1"}};
  h.Join("n1", {.slots = 1, .inventory = inventory});
  h.Join("n2", {.slots = 1, .instance = "second", .inventory = inventory});
  EXPECT_THAT(h.Timeline(), HasSubstr("node n1 has reported device GPU-1 before"));
  EXPECT_EQ(h.Node("n2").others.at("GPU-1").value, "n1");
  EXPECT_TRUE(h.Node("n1").others.empty());
  const JobId first = h.Submit(OnOneNode(GpuYaml("first")));
  EXPECT_EQ(h.Attempt(first).nodes.at(0).value, "n1");
  const JobId second = h.Submit(OnOneNode(GpuYaml("second")));
  EXPECT_EQ(h.State(second), JobState::kQueued);
  h.RunTo(first, 5);
  h.FinishAll(first);
  EXPECT_EQ(h.Attempt(second).nodes.at(0).value, "n1");
}

TEST_F(GpuTest, AGpuOfALostNodeThatNothingHoldsIsFreeForTheNodeThatHasItNow) {
  NodeInventory inventory;
  inventory.devices = {{.id = "GPU-1"}};
  h.Join("n1", {.slots = 1, .inventory = inventory});
  h.Join("n2", {.slots = 1, .instance = "second", .inventory = inventory});
  h.Leave("n1");
  const JobId id = h.Submit(OnOneNode(GpuYaml("job")));
  EXPECT_EQ(h.State(id), JobState::kQueued) << "n1 may return";
  h.Advance(std::chrono::seconds(60));
  ASSERT_EQ(h.Node("n1").record->state, NodeState::kLost) << h.Timeline();
  EXPECT_EQ(h.Attempt(id).nodes.at(0).value, "n2");
}

TEST_F(GpuTest, AnInventoryThatChangesUnderAJobIsReportedAndCounts) {
  h.Join("n1", {.slots = 8, .gpus = 2});
  const JobId id = h.Submit(OnOneNode(GpuYaml("job")));
  h.RunTo(id, 5);
  const HostedGeneration hosted = h.Hosted("n1", id, AttemptState::kRunning);
  h.Leave("n1");
  NodeInventory renamed;
  renamed.devices = {{.id = "MIG-1"}, {.id = "n1-gpu1"}};
  h.Join("n1", {.slots = 8, .hosted = {hosted}, .inventory = renamed});
  EXPECT_THAT(h.Timeline(), HasSubstr("no longer reports device n1-gpu0, which a job has"));
  EXPECT_EQ(h.State(id), JobState::kRunning);
  // MIG-1 may be the GPU that the job still computes on.
  const JobId next = h.Submit(OnOneNode(GpuYaml("next")));
  EXPECT_EQ(h.State(next), JobState::kQueued);
  h.FinishAll(id);
  EXPECT_THAT(DevicesOf(next), ElementsAre(Devices{"MIG-1"}));
}

// The gang is on a GPU that its node reports under another id, or not at all.
TEST_F(GpuTest, AfterAFaultAGangGoesOnWithWhatItsNodeReportsNow) {
  for (const bool parked : {false, true}) {
    ControlHarness c;
    c.Join("n1", {.slots = 8, .gpus = 2});
    const JobId id = c.Submit(OnOneNode(WithRanks(GpuYaml("job"), 2)));
    c.RunTo(id, 5);
    const HostedGeneration hosted = c.Hosted("n1", id, AttemptState::kRunning);
    c.Leave("n1");
    NodeInventory renamed;
    renamed.devices = {{.id = "MIG-1"}, {.id = "MIG-2"}, {.id = "MIG-3"}};
    c.Join("n1", {.slots = 8, .hosted = {hosted}, .inventory = renamed});
    EXPECT_EQ(c.State(id), JobState::kRunning) << c.Timeline();
    c.Exited(id, 0, {0, 9});
    if (parked) {
      c.ParkedOn("n1", id);
      // What is parked may have a GPU that is reported under another id.
      EXPECT_EQ(c.Attempt(id).generation, 1) << c.Timeline();
      EXPECT_FALSE(c.Take<Abort>("n1").empty());
      c.Deliver("n1", Quiesced{.job = id, .generation = 1});
    } else {
      c.Ended(id, 1);
      c.QuiescedOn("n1", id);
    }
    ASSERT_EQ(c.Attempt(id).generation, 2) << c.Timeline();
    EXPECT_THAT(c.Attempt(id).node_devices, ElementsAre(Devices{"MIG-1", "MIG-2"}));
    c.RunTo(id, 8);
    EXPECT_EQ(c.State(id), JobState::kRunning) << c.Timeline();
  }
}

NodeInventory Inventory(int gpus, int cpus, std::uint64_t memory) {
  NodeInventory inventory{.cpus = cpus, .memory_bytes = memory};
  for (int gpu = 0; gpu < gpus; ++gpu)
    inventory.devices.push_back(
        {.id = "GPU-" + std::to_string(gpu), .memory_bytes = std::uint64_t{80} << 30});
  return inventory;
}

// A worker returns with another inventory while a job runs that has 2 GPUs, 8 CPUs and 8 GiB.
TEST_F(GpuTest, AnInventoryThatChangesIsForTheNextAttempt) {
  constexpr std::uint64_t kGiB = 1 << 30;
  NodeInventory smaller_gpus = Inventory(4, 16, 64 * kGiB);
  for (Device& device : smaller_gpus.devices) device.memory_bytes = 40 * kGiB;
  const struct {
    NodeInventory now;
    bool holds_it;       // after a fault
    const char* reason;  // why not
  } kCases[] = {
      {Inventory(5, 16, 64 * kGiB), true, ""},
      {Inventory(3, 16, 64 * kGiB), true, ""},
      {Inventory(1, 16, 64 * kGiB), false, "too few GPUs"},
      {smaller_gpus, false, "too few GPUs of that kind"},
      {Inventory(4, 2, 64 * kGiB), false, "too few CPUs"},
      {Inventory(4, 16, 2 * kGiB), false, "too little memory"},
  };
  for (const auto& each : kCases) {
    ControlHarness c;
    c.Join("n1", {.slots = 8, .inventory = Inventory(4, 16, 64 * kGiB)});
    const JobId id = c.Submit(OnOneNode(WithRanks(
        GpuYaml("job", ", cpus_per_rank: 4, memory_per_rank: 4GiB, gpu: {memory: 60GB}"), 2)));
    c.RunTo(id, 5);
    const HostedGeneration hosted = c.Hosted("n1", id, AttemptState::kRunning);
    c.Leave("n1");
    c.Join("n1", {.slots = 8, .hosted = {hosted}, .inventory = each.now});
    EXPECT_EQ(c.State(id), JobState::kRunning) << c.Timeline();
    const JobId next = c.Submit(OnOneNode(GpuYaml("next")));
    for (int rank : {0, 1}) c.Exited(id, rank, {0, 9});
    c.QuiescedOn("n1", id);
    EXPECT_EQ(c.Attempt(id).generation, each.holds_it ? 2 : 1) << c.Timeline();
    if (each.holds_it) continue;
    EXPECT_THAT(c.Job(id).reason(), HasSubstr(each.reason));
    c.Cancel(next);
    c.Leave("n1");
    c.Join("n1", {.slots = 8, .inventory = Inventory(4, 16, 64 * kGiB)});
    c.Advance(std::chrono::seconds(5));
    EXPECT_EQ(c.Attempt(id).generation, 2) << "the node has it again\n" << c.Timeline();
  }
}

// The ranks behind it got their neighbour's GPU, beside the parked process that still had it.
TEST_F(GpuTest, AGpuThatIsReplacedLeavesTheOthersToTheirRanks) {
  h.Join("n1", {.slots = 8, .gpus = 8});
  const JobId id = h.Submit(OnOneNode(WithRanks(GpuYaml("job"), 4)));
  h.RunTo(id, 5);
  Break("n1", {"n1-gpu1"});
  h.ParkedOn("n1", id);
  ASSERT_EQ(h.Attempt(id).generation, 2) << h.Timeline();
  EXPECT_THAT(DevicesOf(id), ElementsAre(Devices{"n1-gpu0", "n1-gpu4", "n1-gpu2", "n1-gpu3"}));
}

TEST_F(GpuTest, AGpuOfAnOrphanedProcessThatSurvivesIsNotFree) {
  h.Join("n1", {.slots = 1, .gpus = 1});
  h.Join("n2", {.slots = 1, .gpus = 1});
  const JobId id = h.Submit(OnOneNode(GpuYaml("job")));
  h.RunTo(id, 5);
  const std::int64_t pid = h.Attempt(id).ranks[0].pid;
  const HostedGeneration hosted = h.Hosted("n1", id, AttemptState::kRunning);
  h.Leave("n1");
  h.Advance(std::chrono::seconds(60));
  ASSERT_EQ(h.Attempt(id).nodes.at(0).value, "n2") << h.Timeline();
  h.RunTo(id, 6);
  h.Join("n1", {.slots = 2, .hosted = {hosted}, .gpus = 1});
  h.Deliver("n1", Quiesced{.job = id, .generation = 1, .unkillable_pids = {pid}});
  EXPECT_EQ(h.State(h.Submit(OnOneNode(GpuYaml("other")))), JobState::kQueued);
}

TEST_F(GpuTest, AGpuThatAJobGotFromALostNodeStaysItsOwnWhenThatNodeReturns) {
  NodeInventory inventory;
  inventory.devices = {{.id = "GPU-1"}};
  h.Join("n1", {.slots = 1, .inventory = inventory});
  h.Join("n2", {.slots = 1, .instance = "second", .inventory = inventory});
  h.Leave("n1");
  h.Advance(std::chrono::seconds(60));
  const JobId id = h.Submit(OnOneNode(GpuYaml("job")));
  ASSERT_EQ(h.Attempt(id).nodes.at(0).value, "n2");
  h.RunTo(id, 5);
  h.Join("n1", {.slots = 1, .inventory = inventory});
  EXPECT_EQ(h.State(h.Submit(OnOneNode(GpuYaml("other")))), JobState::kQueued);
}

TEST_F(GpuTest, AnUnknownJobsPreparedGuardianKeepsItsGpus) {
  const HostedGeneration stray{
      .job = JobId{"0123456789"}, .generation = 4, .prepared = true, .devices = {"n1-gpu0"}};
  h.Join("n1", {.slots = 8, .hosted = {stray}, .gpus = 1});
  const JobId id = h.Submit(OnOneNode(GpuYaml("gpu")));
  EXPECT_EQ(h.State(id), JobState::kQueued);
  h.Deliver("n1", Released{stray.job});
  EXPECT_EQ(h.State(id), JobState::kStarting);
}

// It has no devices of its own in the attempt's record.
TEST_F(GpuTest, AGpuJobOfAnEarlierVersionKeepsAllGpusOfItsNodes) {
  JoinTwo(4);
  const JobId old = h.Submit(GpuYaml("old"));
  h.RunTo(old, 5);
  AttemptRecord attempt = h.Attempt(old);
  attempt.node_devices.clear();
  h.Store(PutAttempt{attempt});
  const HostedGeneration on1 = h.Hosted("n1", old, AttemptState::kRunning);
  const HostedGeneration on2 = h.Hosted("n2", old, AttemptState::kRunning);
  h.Restart();
  h.Join("n1", {.slots = 8, .hosted = {on1}, .gpus = 4});
  h.Join("n2", {.slots = 8, .hosted = {on2}, .gpus = 4});
  EXPECT_EQ(h.State(h.Submit(OnOneNode(GpuYaml("new")))), JobState::kQueued);
}

TEST_F(GpuTest, ANodeMayHaveSixtyFour) {
  h.Join("n1", {.slots = 64, .gpus = 64});
  const JobId id = h.Submit(OnOneNode(WithRanks(GpuYaml("job"), 64)));
  ASSERT_EQ(DevicesOf(id).size(), 1u);
  EXPECT_EQ(DevicesOf(id)[0].size(), 64u);
  EXPECT_EQ(DevicesOf(id)[0][63], "n1-gpu63");
}

TEST_F(GpuTest, ABrokenGpuMakesNoJobImpossible) {
  JoinTwo(4);
  Break("n1", {"n1-gpu0"});
  Break("n2", {"n2-gpu0"});
  EXPECT_EQ(h.State(h.Submit(OnOneNode(WithRanks(GpuYaml("job"), 4)))), JobState::kQueued);
}

TEST_F(GpuTest, ANodeOfAnEarlierVersionMayHaveAnything) {
  h.Join("n1");
  EXPECT_EQ(h.State(h.Submit(OnOneNode(GpuYaml("job")))), JobState::kQueued);
}

TEST_F(GpuTest, WhatNoNodeCouldHoldIsRefusedWithTheNearestMiss) {
  const JobId early = h.Submit(OnOneNode(WithRanks(GpuYaml("early"), 8)));
  EXPECT_EQ(h.State(early), JobState::kQueued) << "no node is known yet";
  JoinTwo(4);
  const auto refused = [this](const std::string& yaml) {
    const Status status = h.SubmitRaw(yaml).status;
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    return status.message();
  };
  EXPECT_THAT(refused(WithRanks(GpuYaml("many"), 5)),
              HasSubstr("no node of the cluster can hold it: it needs 5 GPUs per node; n1 comes "
                        "nearest and has 4 GPUs"));
  EXPECT_THAT(refused(GpuYaml("kind", ", gpu: {kind: [H100]}")), HasSubstr("has 0 of them"));
  EXPECT_THAT(refused(GpuYaml("label", ", labels: {pool: a}")),
              HasSubstr("it needs the labels pool=a per node"));
  h.Leave("n1");
  h.Leave("n2");
  EXPECT_EQ(h.State(h.Submit(WithRanks(GpuYaml("later"), 4))), JobState::kQueued)
      << "nodes that are away may return";
}

// On one node that has the label.
std::string InPoolA(const std::string& name) {
  std::string yaml = OnOneNode(TrainYaml(name));
  const std::string ranks = "ranks_per_node: 1";
  return yaml.replace(yaml.find(ranks), ranks.size(), ranks + ", labels: {pool: a}");
}

TEST_F(GpuTest, AJobWaitsForALabelThatVanished) {
  h.Join("n1", {.inventory = {.labels = {{"pool", "a"}}}});
  const JobId first = h.Submit(OnOneNode(TrainYaml("first")));
  const JobId second = h.Submit(InPoolA("second"));
  h.RunTo(first, 5);
  const HostedGeneration hosted = h.Hosted("n1", first, AttemptState::kRunning);
  h.Leave("n1");
  h.Join("n1", {.hosted = {hosted}});
  h.FinishAll(first);
  EXPECT_EQ(h.State(second), JobState::kQueued);
  EXPECT_THAT(h.Job(second).reason(), HasSubstr("1 has other labels"));
}

TEST_F(GpuTest, ALabelThatVanishesUnderAGangIsForItsNextAttempt) {
  const NodeInventory labelled{.labels = {{"pool", "a"}}};
  h.Join("n1", {.inventory = labelled});
  const JobId id = h.Submit(InPoolA("job"));
  h.RunTo(id, 5);
  const HostedGeneration hosted = h.Hosted("n1", id, AttemptState::kRunning);
  h.Leave("n1");
  h.Join("n1", {.hosted = {hosted}});
  h.StepTo(id, 12);
  EXPECT_EQ(h.State(id), JobState::kRunning) << h.Timeline();
  h.Exited(id, 0, {0, 9});
  h.QuiescedOn("n1", id);
  EXPECT_EQ(h.Attempt(id).generation, 1) << h.Timeline();
  EXPECT_THAT(h.Job(id).reason(), HasSubstr("1 has other labels"));
  h.Leave("n1");
  h.Join("n1", {.inventory = labelled});
  EXPECT_EQ(h.Attempt(id).generation, 2) << h.Timeline();
}

}  // namespace
}  // namespace muster
