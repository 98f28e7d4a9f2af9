#include "coordinator/scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <random>
#include <set>
#include <string>

#include "coordinator/queues/share_tree.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const NodeInventory kNoDevices;

NodeCapacity MakeNode(const std::string& name, int slots, int free) {
  return {.name = NodeName{name},
          .inventory = &kNoDevices,
          .all = {.slots = slots},
          .free = {.slots = free}};
}

// Of `count` GPUs, the first `free` of which are free.
NodeCapacity MakeGpuNode(const std::string& name, const NodeInventory& inventory, int free) {
  const int count = static_cast<int>(inventory.devices.size());
  const auto mask = [](int n) { return (DeviceMask{1} << n) - 1; };
  return {.name = NodeName{name},
          .inventory = &inventory,
          .all = {.slots = count, .devices = mask(count)},
          .free = {.slots = count, .devices = mask(free)}};
}

NodeInventory Gpus(int count, const std::string& kind = "H100") {
  NodeInventory inventory;
  for (int i = 0; i < count; ++i)
    inventory.devices.push_back({.id = "GPU-" + std::to_string(i), .kind = kind});
  return inventory;
}

GangRequest Request(const std::string& id, std::uint64_t order, int nodes, int ranks) {
  GangRequest request;
  request.job = JobId{id};
  request.submit_order = order;
  request.nodes = nodes;
  request.demand.ranks = ranks;
  return request;
}

std::vector<std::string> Names(const GangPlacement& placement) {
  std::vector<std::string> names;
  for (const NodeName& node : placement.nodes) names.push_back(node.value);
  return names;
}

std::vector<std::string> Placed(const SchedulePlan& plan) {
  std::vector<std::string> jobs;
  for (const GangPlacement& placement : plan.placements) jobs.push_back(placement.job.value);
  return jobs;
}

TEST(SchedulerTest, EarlierSubmissionIsPlacedFirst) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("b", 2, 1, 1), Request("a", 1, 1, 1)};
  snapshot.nodes = {MakeNode("n1", 1, 1)};
  const SchedulePlan plan = Plan(snapshot);
  EXPECT_THAT(Placed(plan), ElementsAre("a"));
  ASSERT_EQ(plan.waiting.size(), 1u);
  EXPECT_EQ(plan.waiting[0].job.value, "b");
}

GangRequest GpuRequest(const std::string& id, std::uint64_t order, int nodes, int ranks) {
  GangRequest request = Request(id, order, nodes, ranks);
  request.demand.devices.per_rank = 1;
  return request;
}

TEST(SchedulerTest, AJobOfGpusIsNotPlacedWhereThereAreNone) {
  const NodeInventory eight = Gpus(8);
  SchedulerSnapshot snapshot;
  snapshot.requests = {GpuRequest("a", 1, 1, 1)};
  snapshot.nodes = {MakeNode("n1", 8, 8), MakeGpuNode("n2", eight, 8)};
  const SchedulePlan placed = Plan(snapshot);
  ASSERT_EQ(placed.placements.size(), 1u);
  EXPECT_THAT(Names(placed.placements[0]), ElementsAre("n2"));
  EXPECT_THAT(placed.placements[0].node_devices, ElementsAre(0x1u));
  snapshot.nodes[1] = MakeNode("n2", 8, 8);
  EXPECT_EQ(WaitText(Plan(snapshot).waiting.at(0).reason),
            "needs 1 node with 1 free slot and 1 GPU; no ready node has room; cannot be placed on "
            "the nodes that are ready now: 0 are suitable, 2 have too few GPUs");
}

// Both got GPUs 0 to 3 of the same 8, as long as GPUs were given out by local rank.
TEST(SchedulerTest, TwoGpuJobsOnOneNodeGetDifferentGpus) {
  const NodeInventory eight = Gpus(8);
  SchedulerSnapshot snapshot;
  snapshot.requests = {GpuRequest("a", 1, 1, 4), GpuRequest("b", 2, 1, 4), GpuRequest("c", 3, 1, 1),
                       Request("cpu", 4, 1, 2)};
  snapshot.nodes = {MakeGpuNode("n1", eight, 8)};
  snapshot.nodes[0].free.slots = snapshot.nodes[0].all.slots = 10;
  const SchedulePlan plan = Plan(snapshot);
  EXPECT_THAT(Placed(plan), ElementsAre("a", "b"));
  EXPECT_THAT(plan.placements[0].node_devices, ElementsAre(0x0fu));
  EXPECT_THAT(plan.placements[1].node_devices, ElementsAre(0xf0u));
  ASSERT_EQ(plan.waiting.size(), 2u);
  EXPECT_EQ(WaitText(plan.waiting[0].reason),
            "needs 1 node with 1 free slot and 1 GPU; no ready node has room, 1 has too few free "
            "GPUs; nodes are kept for it as they become free");
}

TEST(SchedulerTest, AJobKeepsTheGpusThatItHoldsAndNoOtherGetsThem) {
  const NodeInventory eight = Gpus(8);
  SchedulerSnapshot snapshot;
  snapshot.requests = {GpuRequest("new", 1, 1, 3), GpuRequest("ran", 2, 1, 4)};
  snapshot.requests[1].recovering = true;
  snapshot.requests[1].held = {{NodeName{"n1"}, {.slots = 4, .devices = 0x3c}}};
  snapshot.nodes = {MakeGpuNode("n1", eight, 8)};
  snapshot.nodes[0].free = {.slots = 4, .devices = 0xc3};
  const SchedulePlan plan = Plan(snapshot);
  EXPECT_THAT(Placed(plan), ElementsAre("ran", "new"));
  EXPECT_THAT(plan.placements[0].node_devices, ElementsAre(0x3cu));
  EXPECT_THAT(plan.placements[1].node_devices, ElementsAre(0x43u));
}

TEST(SchedulerTest, ASpareHasAsManyGpusAsANodeOfItsGang) {
  const NodeInventory eight = Gpus(8);
  SchedulerSnapshot snapshot;
  snapshot.requests = {GpuRequest("a", 1, 1, 4), GpuRequest("b", 2, 1, 4)};
  snapshot.requests[0].spares = 1;
  snapshot.nodes = {MakeGpuNode("n1", eight, 4), MakeGpuNode("n2", eight, 4)};
  const SchedulePlan plan = Plan(snapshot);
  ASSERT_EQ(plan.placements.size(), 1u);
  EXPECT_THAT(plan.placements[0].spare_devices, ElementsAre(0x0fu));
  EXPECT_EQ(Count(plan.waiting.at(0).reason.occupied, Lack::kDevices), 2);
}

TEST(SchedulerTest, AGangThatMustBeInOneRackIsPlacedInOne) {
  std::vector<NodeInventory> racks(3);
  for (int i = 0; i < 3; ++i) racks[i].topology.rack = "r" + std::to_string(i);
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 2, 1)};
  snapshot.requests[0].demand.topology.within = TopologyLevel::kRack;
  const auto add = [&](const std::string& name, int rack) {
    snapshot.nodes.push_back(MakeNode(name, 1, 1));
    snapshot.nodes.back().inventory = &racks[rack];
  };
  add("n1", 0);
  add("n2", 1);
  const WaitReason apart = Plan(snapshot).waiting.at(0).reason;
  EXPECT_EQ(WaitText(apart),
            "needs 2 nodes with 1 free slot each; 2 ready nodes have room, at most 1 in one rack");
  snapshot.requests[0].demand.topology.required = false;
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n1", "n2"));
  add("n3", 1);
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n2", "n3")) << "where it can";
  snapshot.requests[0].demand.topology.required = true;
  for (int i = 4; i < 7; ++i) add("n" + std::to_string(i), 2);
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n2", "n3")) << "it leaves less";
  snapshot.requests[0].former_nodes = {NodeName{"n5"}};
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n5", "n4")) << "it was there";
}

// It kept all nodes of all racks for itself, and nothing behind it was ever placed.
TEST(SchedulerTest, AGangThatNoRackCanHoldBlocksNoOther) {
  std::vector<NodeInventory> racks(2);
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("wide", 1, 3, 1), Request("small", 2, 1, 1)};
  snapshot.requests[0].demand.topology.within = TopologyLevel::kRack;
  for (int i = 0; i < 4; ++i) {
    racks[i % 2].topology.rack = "r" + std::to_string(i % 2);
    snapshot.nodes.push_back(MakeNode("n" + std::to_string(i), 1, 1));
    snapshot.nodes.back().inventory = &racks[i % 2];
  }
  EXPECT_THAT(Placed(Plan(snapshot)), ElementsAre("small"));
}

// It was formed with half of its nodes again and again, although there was room for all.
TEST(SchedulerTest, AGangThatNeedNotBeInOneRackIsWholeRatherThanInOne) {
  std::vector<NodeInventory> racks(2);
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 4, 1)};
  snapshot.requests[0].min_nodes = 2;
  snapshot.requests[0].demand.topology = {.within = TopologyLevel::kRack, .required = false};
  for (int i = 0; i < 6; ++i) {
    racks[i % 2].topology.rack = "r" + std::to_string(i % 2);
    snapshot.nodes.push_back(MakeNode("n" + std::to_string(i), 1, 1));
    snapshot.nodes.back().inventory = &racks[i % 2];
  }
  EXPECT_EQ(Plan(snapshot).placements.at(0).nodes.size(), 4u);
  snapshot.requests[0].nodes = 0;  // it runs in r1, and wants spares
  snapshot.requests[0].spares = 1;
  snapshot.requests[0].place = "r1";
  EXPECT_THAT(Plan(snapshot).placements.at(0).spares, ElementsAre(NodeName{"n1"}));
  snapshot.requests[0].place = "r2";
  EXPECT_EQ(Plan(snapshot).placements.at(0).spares.size(), 1u);
  snapshot.requests[0].demand.topology.required = true;
  EXPECT_TRUE(Plan(snapshot).placements.empty());
}

TEST(SchedulerTest, ProcessorsAndMemoryAreCountedBesideSlots) {
  const NodeInventory inventory{.cpus = 8, .memory_bytes = 100};
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 1, 1), Request("b", 2, 1, 1), Request("c", 3, 1, 1)};
  snapshot.requests[0].demand.cpus_per_rank = 6;
  snapshot.requests[1].demand.cpus_per_rank = 4;
  snapshot.requests[2].demand.memory_per_rank = 100;
  const NodeParts all{.slots = 8, .cpus = 8, .memory_bytes = 100};
  snapshot.nodes = {{.name = NodeName{"n1"}, .inventory = &inventory, .all = all, .free = all},
                    {.name = NodeName{"n2"}, .inventory = &inventory, .all = all, .free = all}};
  snapshot.nodes[1].free.cpus = 3;
  const SchedulePlan plan = Plan(snapshot);
  EXPECT_THAT(Placed(plan), ElementsAre("a", "c")) << "b waits for CPUs of one node only";
  EXPECT_THAT(Names(plan.placements[1]), ElementsAre("n1"));
  EXPECT_EQ(
      WaitText(plan.waiting.at(0).reason),
      "needs 1 node with 1 free slot; no ready node has room, 2 have too few free CPUs; nodes "
      "are kept for it as they become free");
}

TEST(SchedulerTest, TheNearestMissIsTheNodeThatLacksLeast) {
  const NodeInventory four = Gpus(4);
  const NodeInventory others = Gpus(8, "A100");
  GangRequest request = GpuRequest("a", 1, 1, 8);
  request.demand.devices.kinds = {"H100"};
  const auto none = MissOf(request, MakeNode("n1", 8, 8));
  const auto few = MissOf(request, MakeGpuNode("n2", four, 4));
  const auto other = MissOf(request, MakeGpuNode("n3", others, 8));
  ASSERT_TRUE(none && few && other);
  EXPECT_TRUE(IsNearer(*few, *none));
  EXPECT_TRUE(IsNearer(*few, *other)) << "n3 has none of the kind";
  EXPECT_EQ(MissText(*few, 3),
            "no node of the cluster can hold it: it needs 8 H100 GPUs per node; "
            "n2 comes nearest and has 4 GPUs");
  EXPECT_EQ(MissText(*none, 1),
            "the cluster's node cannot hold it: it needs 8 H100 GPUs per node; n1 has 0 GPUs");
  request.demand.ranks = 4;
  EXPECT_FALSE(MissOf(request, MakeGpuNode("n2", four, 0)).has_value()) << "it is only in use";
  request.exclude = {NodeName{"n2"}};
  EXPECT_EQ(MissText(*MissOf(request, MakeGpuNode("n2", four, 4)), 1),
            "the cluster's node cannot hold it: resources.exclude names n2");
}

TEST(SchedulerTest, HigherPriorityIsPlacedBeforeEarlierSubmission) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 1, 1), Request("b", 2, 1, 1)};
  snapshot.requests[1].priority = 90;
  snapshot.nodes = {MakeNode("n1", 1, 1)};
  EXPECT_THAT(Placed(Plan(snapshot)), ElementsAre("b"));
}

TEST(SchedulerTest, GangIsPlacedWholeOrNotAtAllWithTheReason) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 2, 1)};
  snapshot.nodes = {MakeNode("n1", 2, 2), MakeNode("n2", 2, 0)};
  const SchedulePlan plan = Plan(snapshot);
  EXPECT_TRUE(plan.placements.empty());
  ASSERT_EQ(plan.waiting.size(), 1u);
  EXPECT_EQ(WaitText(plan.waiting[0].reason),
            "needs 2 nodes with 1 free slot each; 1 ready node has room, 1 has too few free slots; "
            "nodes are kept for it as they become free");
}

TEST(SchedulerTest, JobThatNoWaitingWouldPlaceIsReportedAndBlocksNoOther) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("big", 1, 3, 1), Request("small", 2, 1, 1)};
  snapshot.nodes = {MakeNode("n1", 1, 1), MakeNode("n2", 1, 1)};
  const SchedulePlan plan = Plan(snapshot);
  EXPECT_THAT(Placed(plan), ElementsAre("small"));
  EXPECT_THAT(WaitText(plan.waiting[0].reason),
              HasSubstr("cannot be placed on the nodes that are ready"));
}

TEST(SchedulerTest, NodesAreKeptForTheJobAhead) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("wide", 1, 2, 2), Request("narrow", 2, 1, 1)};
  snapshot.nodes = {MakeNode("n1", 2, 2), MakeNode("n2", 2, 1), MakeNode("n3", 1, 1)};
  const SchedulePlan plan = Plan(snapshot);
  // n3 is too small for the wide job, so it may be used in the meantime; n1 and n2 may not.
  ASSERT_THAT(Placed(plan), ElementsAre("narrow"));
  EXPECT_THAT(Names(plan.placements[0]), ElementsAre("n3"));

  snapshot.nodes.pop_back();
  const SchedulePlan full = Plan(snapshot);
  EXPECT_TRUE(full.placements.empty());
  EXPECT_THAT(WaitText(full.waiting[1].reason), HasSubstr("kept for job wide ahead of it"));
}

TEST(SchedulerTest, ExcludedNodesAreNotUsed) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 1, 1)};
  snapshot.requests[0].exclude = {NodeName{"n1"}};
  snapshot.nodes = {MakeNode("n1", 8, 8), MakeNode("n2", 8, 8)};
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n2"));
  snapshot.nodes.pop_back();
  EXPECT_THAT(WaitText(Plan(snapshot).waiting.at(0).reason), HasSubstr("1 is excluded"));
}

TEST(SchedulerTest, RecoveringJobKeepsItsNodesAndTheirOrder) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 3, 1)};
  snapshot.requests[0].former_nodes = {NodeName{"n3"}, NodeName{"n1"}, NodeName{"n4"}};
  snapshot.nodes = {MakeNode("n1", 1, 1), MakeNode("n2", 1, 1), MakeNode("n3", 1, 1),
                    MakeNode("n4", 1, 1)};
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n3", "n1", "n4"));
  snapshot.nodes[0].free.slots = 0;
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n3", "n2", "n4"));
}

TEST(SchedulerTest, FreshGangsPackTheFullestNodesAndCountNamesAsPeopleDo) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 1, 1)};
  snapshot.nodes = {MakeNode("n1", 8, 8), MakeNode("n2", 8, 3)};
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n2"));
  snapshot.requests = {Request("a", 1, 2, 1)};
  snapshot.nodes = {MakeNode("n10", 1, 1), MakeNode("n2", 1, 1)};
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n2", "n10"));
}

TEST(SchedulerTest, AGangMayBeSmallerIfItsRequestAllowsIt) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 3, 1)};
  snapshot.requests[0].min_nodes = 2;
  snapshot.requests[0].former_nodes = {NodeName{"n3"}, NodeName{"n2"}, NodeName{"n1"}};
  snapshot.nodes = {MakeNode("n1", 1, 1), MakeNode("n3", 1, 1)};
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n3", "n1"));
  snapshot.nodes.pop_back();
  EXPECT_THAT(WaitText(Plan(snapshot).waiting.at(0).reason), HasSubstr("needs 2 nodes"));
}

TEST(SchedulerTest, SparesBelongToOneJob) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 1, 1), Request("b", 2, 1, 1)};
  snapshot.requests[0].spares = 2;
  snapshot.requests[0].preferred = {NodeName{"n3"}};
  snapshot.nodes = {MakeNode("n1", 1, 1), MakeNode("n2", 1, 1), MakeNode("n3", 1, 1)};
  const SchedulePlan plan = Plan(snapshot);
  EXPECT_THAT(Names(plan.placements.at(0)), ElementsAre("n3"));
  EXPECT_EQ(plan.placements.at(0).spares.size(), 2u);
  EXPECT_EQ(plan.waiting.at(0).job.value, "b");
}

NodeCapacity InDomain(const std::string& name, const std::string& domain) {
  NodeCapacity node = MakeNode(name, 1, 1);
  node.domain = domain;
  return node;
}

std::vector<std::string> Spares(const GangPlacement& placement) {
  std::vector<std::string> names;
  for (const NodeName& node : placement.spares) names.push_back(node.value);
  return names;
}

TEST(SchedulerTest, ALostNodeIsReplacedSoThatNoDomainHasMoreThanHalfOfTheGang) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 4, 1)};
  snapshot.requests[0].former_nodes = {NodeName{"n1"}, NodeName{"n2"}, NodeName{"n3"},
                                       NodeName{"gone"}};
  snapshot.nodes = {InDomain("n1", "a"), InDomain("n2", "a"), InDomain("n3", "b"),
                    InDomain("n4", "a"), InDomain("n5", "b")};
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n1", "n2", "n3", "n5"));
  snapshot.requests[0].preferred = {NodeName{"n4"}};
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n1", "n2", "n3", "n4"))
      << "its own spare is held for it";
  snapshot.requests[0].preferred.push_back(NodeName{"n5"});
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n1", "n2", "n3", "n5"));
}

TEST(SchedulerTest, AFreshGangLeavesNoDomainMoreThanHalfWhereThereIsAnother) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 4, 1)};
  for (int i = 1; i <= 4; ++i) snapshot.nodes.push_back(InDomain("n" + std::to_string(i), "a"));
  for (int i = 5; i <= 8; ++i) snapshot.nodes.push_back(InDomain("n" + std::to_string(i), "b"));
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n1", "n2", "n5", "n6"));
}

TEST(SchedulerTest, RanksOfOneDomainAreNeighbours) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 5, 1)};
  snapshot.nodes = {InDomain("n1", "b"), InDomain("n2", "a"), InDomain("n3", "b"),
                    InDomain("n4", "c"), InDomain("n10", "a")};
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n1", "n3", "n2", "n10", "n4"));
}

TEST(SchedulerTest, WithoutDomainsNodesAreTakenInTheOrderOfTheirNames) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 2, 1)};
  snapshot.requests[0].spares = 1;
  for (const char* domain : {"", "one host"}) {
    snapshot.nodes = {InDomain("n1", domain), InDomain("n2", domain), InDomain("n3", domain)};
    EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n1", "n2"));
    EXPECT_THAT(Spares(Plan(snapshot).placements.at(0)), ElementsAre("n3"));
  }
}

TEST(SchedulerTest, SparesComeFromDomainsThatTheGangIsNotIn) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 2, 1)};
  snapshot.requests[0].spares = 1;
  snapshot.nodes = {InDomain("n1", "a"), InDomain("n2", "b"), InDomain("n3", "a"),
                    InDomain("n4", "c")};
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n1", "n2"));
  EXPECT_THAT(Spares(Plan(snapshot).placements.at(0)), ElementsAre("n4"));

  // The same for a gang that is at work.
  snapshot.requests[0].nodes = 0;
  snapshot.requests[0].domains = {"c", "b"};
  snapshot.requests[0].exclude = {NodeName{"n2"}};
  EXPECT_THAT(Spares(Plan(snapshot).placements.at(0)), ElementsAre("n1"));
}

TEST(SchedulerTest, AFaultDoesNotCostAJobItsPlaceToOneOfHigherPriority) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("urgent", 1, 1, 1), Request("ran", 2, 1, 1)};
  snapshot.requests[0].priority = 90;
  snapshot.requests[1].recovering = true;
  snapshot.nodes = {MakeNode("n1", 1, 1)};
  const SchedulePlan plan = Plan(snapshot);
  ASSERT_EQ(plan.placements.size(), 1u);
  EXPECT_EQ(plan.placements[0].job.value, "ran");
}

TEST(SchedulerTest, HeldSlotsServeTheirJobAlone) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("new", 1, 1, 1), Request("held", 2, 1, 1)};
  snapshot.requests[1].held = {{NodeName{"n1"}, {.slots = 1}}};
  snapshot.nodes = {MakeNode("n1", 1, 0)};
  EXPECT_THAT(Placed(Plan(snapshot)), ElementsAre("held")) << "no other job can use what it holds";
  snapshot.requests[1].recovering = true;
  EXPECT_THAT(Placed(Plan(snapshot)), ElementsAre("held")) << "it ran until now";
  snapshot.requests[1].held.clear();
  EXPECT_TRUE(Plan(snapshot).placements.empty());
}

TEST(SchedulerTest, NoNodeIsReady) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 1, 2)};
  EXPECT_EQ(WaitText(Plan(snapshot).waiting.at(0).reason),
            "needs 1 node with 2 free slots; no node is ready");
}

GangRequest Limited(const std::string& id, std::uint64_t order, int nodes, Duration length) {
  GangRequest request = Request(id, order, nodes, 1);
  request.length = length;
  return request;
}

// A gang that runs on these nodes, one slot each.
RunningGang RunningOn(const std::vector<std::string>& nodes, TimePoint ends) {
  RunningGang gang{.amounts = {.slots = static_cast<int>(nodes.size())}, .ends = ends};
  for (const std::string& node : nodes) gang.parts.push_back({NodeName{node}, {.slots = 1}});
  return gang;
}

void Promised(GangRequest& request, const WaitingJob& waiting) {
  request.promise = waiting.promise;
  if (waiting.promise) request.turn = std::min(request.turn, waiting.promise->start);
}

// A job without a limit took its nodes for a while; a later one was promised them in the meantime,
// and went first when they were free again.
TEST(SchedulerTest, AJobWhosePlanIsGoneKeepsItsTurn) {
  constexpr std::chrono::hours kHour(1);
  SchedulerSnapshot snapshot;
  snapshot.nodes = {MakeNode("n1", 1, 0), MakeNode("n2", 1, 0)};
  const RunningGang until = RunningOn({"n1"}, snapshot.now + kHour);
  snapshot.running = {until, RunningOn({"n2"}, snapshot.now + std::chrono::minutes(5))};
  snapshot.requests = {Limited("wide", 1, 2, kHour), Limited("later", 2, 1, 3 * kHour)};
  const SchedulePlan plan = Plan(snapshot);
  for (int i = 0; i < 2; ++i) Promised(snapshot.requests[i], plan.waiting.at(i));
  snapshot.requests[0].promise.reset();
  snapshot.running = {until};
  snapshot.nodes[1].free.slots = 1;
  const SchedulePlan free = Plan(snapshot);
  EXPECT_TRUE(free.placements.empty());
  ASSERT_TRUE(free.waiting.at(0).promise);
  EXPECT_EQ(free.waiting[0].promise->start, snapshot.now + kHour);
}

// Its clock has milliseconds and the other one has nanoseconds: a later promise went first.
TEST(SchedulerTest, AnEndThatIsALittleLaterKeepsTheOrderOfPromises) {
  constexpr std::chrono::hours kHour(1);
  SchedulerSnapshot snapshot;
  snapshot.nodes = {MakeNode("n1", 1, 0)};
  snapshot.running = {RunningOn({"n1"}, snapshot.now + kHour)};
  snapshot.requests = {Limited("a", 1, 1, kHour), Limited("b", 2, 1, kHour)};
  SchedulePlan plan = Plan(snapshot);
  ASSERT_EQ(plan.waiting[1].promise->start, snapshot.now + 2 * kHour);
  for (int i = 0; i < 2; ++i) Promised(snapshot.requests[i], plan.waiting[i]);
  constexpr std::chrono::microseconds kLate(500);
  snapshot.running[0].ends += kLate;
  plan = Plan(snapshot);
  EXPECT_EQ(plan.waiting[0].job.value, "a");
  EXPECT_EQ(plan.waiting[0].promise->start, snapshot.now + kHour + kLate);
  EXPECT_EQ(plan.waiting[1].promise->start, snapshot.now + 2 * kHour + kLate);
  EXPECT_EQ(plan.waiting[0].delayed, DelayCause::kLimits);
}

// The second one's start slipped with that of the first, which then found another node.
TEST(SchedulerTest, APromiseBehindOneThatMovesAwayKeepsItsStart) {
  using std::chrono::minutes;
  SchedulerSnapshot snapshot;
  snapshot.nodes = {MakeNode("n1", 1, 0), MakeNode("n2", 1, 0), MakeNode("n3", 1, 0)};
  snapshot.running = {RunningOn({"n1"}, snapshot.now + minutes(60)),
                      RunningOn({"n2"}, snapshot.now + minutes(300)),
                      RunningOn({"n3"}, snapshot.now + minutes(180))};
  snapshot.requests = {Limited("first", 1, 1, minutes(120)), Limited("second", 2, 2, minutes(60))};
  SchedulePlan plan = Plan(snapshot);
  for (int i = 0; i < 2; ++i) Promised(snapshot.requests[i], plan.waiting.at(i));
  ASSERT_EQ(snapshot.requests[1].promise->start, snapshot.now + minutes(180));
  snapshot.running[0].ends = snapshot.now + minutes(70);
  snapshot.running[1].ends = snapshot.now + minutes(60);
  plan = Plan(snapshot);
  EXPECT_THAT(plan.waiting[0].promise->nodes, ElementsAre(NodeName{"n2"}));
  EXPECT_EQ(plan.waiting[1].promise->start, snapshot.now + minutes(180));
  EXPECT_EQ(plan.waiting[1].delayed, DelayCause::kNone);
}

// Its node went to another job after the recovery's share of the queue had kept it from it; the
// cause was given as a changed limit.
TEST(SchedulerTest, AGangThatRecoversIsWhyAPromiseOfItsQueueIsDelayed) {
  using std::chrono::minutes;
  QueueTree tree = DefaultTree();
  tree.queues.push_back({.name = "two", .ceiling = {.slots = 2}});
  SchedulerSnapshot snapshot;
  snapshot.queues = &tree;
  snapshot.usage = {0, 0};
  snapshot.nodes = {MakeNode("n1", 1, 0), MakeNode("n2", 1, 1)};
  snapshot.running = {RunningOn({"n1"}, snapshot.now + minutes(45))};
  const auto promised = [&](GangRequest request, int queue, const char* node, int start, int turn) {
    request.queue = queue;
    request.promise =
        Promise{.start = snapshot.now + minutes(start), .nodes = {NodeName{node}}, .devices = {0}};
    request.turn = snapshot.now + minutes(turn);
    return request;
  };
  GangRequest recovering = Limited("recovering", 1, 1, minutes(60));
  recovering.queue = 1;
  recovering.recovering = true;
  recovering.former_nodes = {NodeName{"lost"}};
  recovering.exclude = {NodeName{"n1"}, NodeName{"n2"}};
  snapshot.requests = {recovering, promised(Limited("now", 2, 1, minutes(40)), 1, "n2", 30, 30),
                       promised(Limited("other", 3, 1, minutes(60)), 0, "n1", 120, 40),
                       promised(Limited("delayed", 4, 1, minutes(60)), 1, "n1", 50, 50)};
  for (int i : {2, 3}) snapshot.requests[i].exclude = {NodeName{"n2"}};
  const SchedulePlan plan = Plan(snapshot);
  ASSERT_THAT(Placed(plan), ElementsAre("now"));
  const WaitingJob& delayed = plan.waiting.back();
  ASSERT_EQ(delayed.job.value, "delayed");
  EXPECT_GT(delayed.promise->start, snapshot.now + minutes(50));
  EXPECT_EQ(delayed.delayed, DelayCause::kRecovery);
}

// The first one's reason was that its node is kept for the second one, "ahead of it".
TEST(SchedulerTest, NoJobWaitsForOneThatWasPromisedALaterStart) {
  constexpr std::chrono::hours kHour(1);
  SchedulerSnapshot snapshot;
  snapshot.nodes = {MakeNode("n1", 1, 0)};
  snapshot.running = {RunningOn({"n1"}, snapshot.now + kHour)};
  snapshot.requests = {Limited("a", 1, 1, kHour), Limited("b", 2, 1, kHour)};
  const SchedulePlan first = Plan(snapshot);
  for (int i = 0; i < 2; ++i) Promised(snapshot.requests[i], first.waiting.at(i));
  const SchedulePlan plan = Plan(snapshot);
  EXPECT_EQ(WaitText(plan.waiting[0].reason),
            "needs 1 node with 1 free slot; no ready node has room, 1 has too few free slots");
  EXPECT_EQ(
      WaitText(plan.waiting[1].reason),
      "needs 1 node with 1 free slot; no ready node has room, 1 is kept for job a ahead of it");
}

// It has room only until then, and names what takes it.
TEST(SchedulerTest, AJobNamesTheOneBehindItThatWasPromisedItsNode) {
  constexpr std::chrono::hours kHour(1);
  SchedulerSnapshot snapshot;
  snapshot.nodes = {MakeNode("n1", 1, 1), MakeNode("n2", 1, 0)};
  snapshot.running = {RunningOn({"n2"}, snapshot.now + kHour)};
  snapshot.requests = {Limited("wide", 1, 2, kHour)};
  const SchedulePlan first = Plan(snapshot);
  Promised(snapshot.requests[0], first.waiting.at(0));
  snapshot.requests.push_back(Limited("long", 2, 1, 3 * kHour));
  snapshot.requests[1].turn = snapshot.now;  // its own plan is gone
  const SchedulePlan plan = Plan(snapshot);
  ASSERT_EQ(plan.waiting[0].job.value, "long");
  EXPECT_EQ(WaitText(plan.waiting[0].reason),
            "needs 1 node with 1 free slot; no ready node has room, 1 is kept for job wide ahead "
            "of it, 1 "
            "has too few free slots");
}

// It was promised a node that the first job collects, once it became free.
TEST(SchedulerTest, NoLaterJobIsPromisedWhatTheFirstOneCollects) {
  SchedulerSnapshot snapshot;
  snapshot.nodes = {MakeNode("n1", 1, 0), MakeNode("n2", 1, 0)};
  snapshot.running = {RunningOn({"n1"}, kNever),
                      RunningOn({"n2"}, snapshot.now + std::chrono::hours(1))};
  snapshot.requests = {Request("wide", 1, 2, 1), Request("later", 2, 1, 1)};
  const SchedulePlan plan = Plan(snapshot);
  EXPECT_EQ(plan.waiting[0].collects.size(), 2u);
  EXPECT_EQ(plan.waiting[1].promise, std::nullopt);
}

TEST(SchedulerTest, AGangThatRecoversGrowsWithinItsCeilingOnly) {
  QueueTree tree = DefaultTree();
  tree.queues[0].ceiling.slots = 4;
  SchedulerSnapshot snapshot{.queues = &tree};
  snapshot.nodes = {MakeNode("n1", 1, 1), MakeNode("n2", 1, 1), MakeNode("n3", 1, 1),
                    MakeNode("n4", 1, 1)};
  snapshot.running = {{.amounts = {.slots = 1}}};
  snapshot.requests = {Request("a", 1, 4, 1)};
  GangRequest& request = snapshot.requests[0];
  request.min_nodes = 2;
  request.recovering = true;
  request.former_nodes = {NodeName{"n1"}, NodeName{"n2"}, NodeName{"n3"}};
  EXPECT_EQ(Plan(snapshot).placements.at(0).nodes.size(), 3u);
  tree.queues[0].ceiling.slots = 1;
  EXPECT_EQ(Plan(snapshot).placements.at(0).nodes.size(), 3u) << "what it had is its own";
  tree.queues[0].ceiling.slots = 5;
  EXPECT_EQ(Plan(snapshot).placements.at(0).nodes.size(), 4u);
}

TEST(SchedulerTest, AJobOverItsCeilingSaysNothingOfTheRoomForOthers) {
  QueueTree tree = DefaultTree();
  tree.queues[0].ceiling.slots = 1;
  tree.queues.push_back({.name = "b"});
  SchedulerSnapshot snapshot{.queues = &tree};
  snapshot.nodes = {MakeNode("n1", 1, 0), MakeNode("n2", 1, 1)};
  snapshot.running = {{.amounts = {.slots = 1}}};
  snapshot.requests = {Request("over", 1, 1, 1), Request("other", 2, 1, 1)};
  snapshot.requests[1].queue = 1;
  const SchedulePlan plan = Plan(snapshot);
  EXPECT_THAT(Placed(plan), ElementsAre("other"));
  EXPECT_EQ(plan.waiting.at(0).reason.over_ceiling, "default");
}

// A queue with users, of one slot for each job.
struct TwoUsers {
  explicit TwoUsers(const UserLimits& limits = {}, int slots = 4) {
    QueueTree queues = DefaultTree();
    queues.queues[0].per_user = limits;
    shares = ShareTree(queues, /*by_user=*/true);
    for (const char* user : {"ada", "bob"}) shares.Add("default", user);
    snapshot.queues = &shares.tree();
    snapshot.nodes = {MakeNode("n1", slots, slots)};
  }
  GangRequest& Wants(const std::string& job, const std::string& user) {
    GangRequest request = Request(job, snapshot.requests.size(), 1, 1);
    request.queue = shares.Add("default", user);
    snapshot.requests.push_back(request);
    return snapshot.requests.back();
  }
  RunningGang& Has(const std::string& user, TimePoint ends = kNever) {
    RunningGang gang = RunningOn({"n1"}, ends);
    gang.queue = shares.Find("default", user);
    gang.amounts.jobs = 1;
    --snapshot.nodes[0].free.slots;
    snapshot.running.push_back(gang);
    return snapshot.running.back();
  }
  ShareTree shares;
  SchedulerSnapshot snapshot;
};

TEST(SchedulerTest, UsersOfAQueueTakeTurnsWhoeverCameFirst) {
  TwoUsers two;
  for (int i = 0; i < 100; ++i) two.Wants("a" + std::to_string(i), "ada").priority = 100;
  for (const char* job : {"b0", "b1", "b2"}) two.Wants(job, "bob").priority = 0;
  EXPECT_THAT(Placed(Plan(two.snapshot)), ElementsAre("a0", "b0", "a1", "b1"))
      << "priority orders a user's own jobs";
}

TEST(SchedulerTest, AUserWhoHasHadNothingGoesFirst) {
  TwoUsers two({}, 1);
  two.snapshot.usage = {0, 5000, 7200};
  two.Wants("a", "ada");
  two.Wants("b", "bob");
  two.Wants("c", "carl");
  const SchedulePlan plan = Plan(two.snapshot);
  EXPECT_THAT(Placed(plan), ElementsAre("c"));
  EXPECT_EQ(plan.waiting.at(0).job.value, "a") << "then the one who has had less";
}

TEST(SchedulerTest, AUserHasNoMoreThanOneUserMayHave) {
  TwoUsers two({.ceiling = {kNoCeiling, 2}});
  for (const char* job : {"a0", "a1", "a2"}) two.Wants(job, "ada");
  two.Wants("b0", "bob");
  const SchedulePlan plan = Plan(two.snapshot);
  EXPECT_THAT(Placed(plan), ElementsAre("a0", "b0", "a1"));
  EXPECT_EQ(WaitText(plan.waiting.at(0).reason),
            "needs 1 node with 1 free slot; ada has 2 of the 2 slots that one user may have in "
            "queue default");
}

TEST(SchedulerTest, AUserRunsNoMoreJobsThanOneUserMayAndTheNextIsPromisedAStart) {
  TwoUsers two({.ceiling = {kNoCeiling, kNoCeiling, 2}});
  const TimePoint end = two.snapshot.now + std::chrono::hours(1);
  two.Has("ada", end);
  for (const char* job : {"a0", "a1"}) two.Wants(job, "ada").length = std::chrono::hours(2);
  two.Wants("b0", "bob").length = std::chrono::hours(2);
  const SchedulePlan plan = Plan(two.snapshot);
  EXPECT_THAT(Placed(plan), ElementsAre("a0", "b0"));
  ASSERT_EQ(plan.waiting.size(), 1u);
  EXPECT_EQ(WaitText(plan.waiting[0].reason),
            "needs 1 node with 1 free slot; ada has 2 of the 2 running jobs that one user may "
            "have in queue default");
  ASSERT_TRUE(plan.waiting[0].promise);
  EXPECT_EQ(plan.waiting[0].promise->start, end);
}

TEST(SchedulerTest, AJobThatRecoversIsNotHeldBackByItsOwnersOthersAndCountsMeanwhile) {
  TwoUsers two({.ceiling = {kNoCeiling, kNoCeiling, 1}});
  two.Has("ada");
  two.Wants("next", "ada");
  GangRequest& fell = two.Wants("fell", "ada");
  fell.recovering = true;
  fell.former_nodes = {NodeName{"n1"}};
  EXPECT_THAT(Placed(Plan(two.snapshot)), ElementsAre("fell"));
  two.snapshot.running.clear();
  EXPECT_THAT(Placed(Plan(two.snapshot)), ElementsAre("fell")) << "and is the one that it may run";
}

// What a gang wants beside its nodes is no other job.
TEST(SchedulerTest, AGangGetsItsSparesWhereItsOwnerMayRunNoOtherJob) {
  TwoUsers two({.ceiling = {kNoCeiling, kNoCeiling, 1}});
  two.Has("ada");
  GangRequest& spare = two.Wants("runs", "ada");
  spare.nodes = 0;
  spare.spares = 1;
  EXPECT_THAT(Placed(Plan(two.snapshot)), ElementsAre("runs"));
}

// The sum of their limits was before the time itself, and all got the same device.
TEST(SchedulerTest, LimitsOfCenturiesDoNotOverflow) {
  constexpr std::chrono::hours kCentury(24 * 36500);
  SchedulerSnapshot snapshot;
  snapshot.nodes = {MakeNode("n1", 1, 0)};
  snapshot.running = {RunningOn({"n1"}, snapshot.now + kCentury)};
  for (std::uint64_t i = 0; i < 6; ++i)
    snapshot.requests.push_back(
        Limited(std::string(1, static_cast<char>('a' + i)), i, 1, kCentury));
  TimePoint before = snapshot.now;
  for (const WaitingJob& waiting : Plan(snapshot).waiting) {
    if (!waiting.promise) continue;
    EXPECT_GE(waiting.promise->start, before + kCentury);
    before = waiting.promise->start;
  }
  EXPECT_GT(before, snapshot.now + kCentury);
}

TEST(SchedulerTest, ANodeThatMayBeBackKeepsItsPromisesAndTakesNothingNew) {
  constexpr std::chrono::hours kHour(1);
  SchedulerSnapshot snapshot;
  snapshot.nodes = {MakeNode("n1", 1, 0), MakeNode("n2", 1, 1)};
  snapshot.running = {RunningOn({"n1"}, snapshot.now + kHour)};
  snapshot.requests = {Limited("wide", 1, 2, kHour)};
  const SchedulePlan plan = Plan(snapshot);
  Promised(snapshot.requests[0], plan.waiting.at(0));
  ASSERT_TRUE(snapshot.requests[0].promise);
  snapshot.nodes[1].usable_from = snapshot.now + std::chrono::minutes(1);
  snapshot.requests.push_back(Limited("short", 2, 1, std::chrono::minutes(5)));
  const SchedulePlan silent = Plan(snapshot);
  EXPECT_TRUE(silent.placements.empty());
  EXPECT_EQ(silent.waiting.at(0).promise, snapshot.requests[0].promise);
  EXPECT_EQ(silent.waiting.at(0).reason.ready, 1);
}

// Up to eight GPUs of two kinds.
const std::vector<NodeInventory>& Inventories() {
  static const std::vector<NodeInventory> made = [] {
    std::vector<NodeInventory> inventories;
    for (int i = 0; i < 9; ++i) {
      inventories.push_back(Gpus(i, i % 3 == 0 ? "A100" : "H100"));
      inventories.back().topology.rack = "r" + std::to_string(i % 2);
    }
    return inventories;
  }();
  return made;
}

// A free device of the node, which is not free any more.
DeviceMask TakeOne(NodeCapacity& node) {
  const DeviceMask device = node.free.devices & (~node.free.devices + 1);
  node.free.devices &= ~device;
  return device;
}

SchedulerSnapshot RandomSnapshot(std::mt19937& random) {
  auto pick = [&random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  SchedulerSnapshot snapshot;
  for (int i = 0, n = pick(0, 8); i < n; ++i) {
    const int slots = pick(0, 8);
    snapshot.nodes.push_back(MakeNode("n" + std::to_string(i), slots, pick(0, slots)));
    NodeCapacity& node = snapshot.nodes.back();
    node.inventory = &Inventories()[static_cast<std::size_t>(pick(0, 8))];
    node.all.devices = (DeviceMask{1} << node.inventory->devices.size()) - 1;
    node.free.devices = node.all.devices & static_cast<DeviceMask>(pick(0, 255));
  }
  for (int i = 0, n = pick(0, 10); i < n; ++i) {
    GangRequest request = Request("j" + std::to_string(i), i, pick(1, 4), pick(1, 4));
    request.priority = pick(0, 3);
    request.demand.devices.per_rank = pick(0, 2);
    if (pick(0, 3) == 0) request.demand.devices.kinds = {"H100"};
    if (pick(0, 5) == 0) request.demand.topology.within = TopologyLevel::kRack;
    request.demand.topology.required = pick(0, 2) > 0;
    for (int k = pick(0, 2); k > 0; --k) {
      request.exclude.push_back(NodeName{"n" + std::to_string(pick(0, 8))});
    }
    if (pick(0, 1) == 0) request.min_nodes = pick(1, request.nodes);
    request.spares = pick(0, 2);
    if (pick(0, 4) == 0)
      if (const int n = pick(0, 8); n < static_cast<int>(snapshot.nodes.size()))
        request.held.push_back({snapshot.nodes[static_cast<std::size_t>(n)].name,
                                {.slots = 1, .devices = TakeOne(snapshot.nodes[n])}});
    if (pick(0, 6) == 0) request.nodes = 0;
    for (int k = pick(0, 4); k > 0; --k) {
      request.former_nodes.push_back(NodeName{"n" + std::to_string(pick(0, 8))});
    }
    snapshot.requests.push_back(request);
  }
  return snapshot;
}

bool MustBeInOneRack(const GangRequest& request) {
  const TopologyDemand& topology = request.demand.topology;
  return topology.within == TopologyLevel::kRack && topology.required && request.nodes > 0;
}

bool AllAre(const std::string& kind, const NodeInventory& inventory, DeviceMask devices) {
  for (std::size_t i = 0; i < inventory.devices.size(); ++i)
    if ((devices >> i & 1) != 0 && inventory.devices[i].kind != kind) return false;
  return true;
}

TEST(SchedulerTest, RandomSnapshotsNeverOverAllocateAndLoseNoJob) {
  std::mt19937 random(20240917);
  for (int round = 0; round < 3000; ++round) {
    const SchedulerSnapshot snapshot = RandomSnapshot(random);
    const SchedulePlan plan = Plan(snapshot);
    SCOPED_TRACE("round " + std::to_string(round));
    std::map<std::string, const GangRequest*> requests;
    for (const GangRequest& request : snapshot.requests) requests[request.job.value] = &request;
    std::map<std::string, int> free;
    std::map<std::string, DeviceMask> devices;
    std::map<std::string, const NodeInventory*> inventories;
    for (const NodeCapacity& node : snapshot.nodes) {
      free[node.name.value] = node.free.slots;
      devices[node.name.value] = node.free.devices;
      inventories[node.name.value] = node.inventory;
    }
    std::set<std::string> seen;
    for (const GangPlacement& placement : plan.placements) {
      const GangRequest& request = *requests.at(placement.job.value);
      ASSERT_TRUE(seen.insert(placement.job.value).second);
      ASSERT_LE(placement.nodes.size(), static_cast<std::size_t>(request.nodes));
      ASSERT_GE(placement.nodes.size(), static_cast<std::size_t>(request.least()));
      ASSERT_LE(placement.spares.size(), static_cast<std::size_t>(request.spares));
      for (const HeldParts& held : request.held) {
        free[held.node.value] += held.parts.slots;
        devices[held.node.value] |= held.parts.devices;
      }
      std::vector<NodeName> taken = placement.nodes;
      taken.insert(taken.end(), placement.spares.begin(), placement.spares.end());
      std::vector<DeviceMask> taken_devices = placement.node_devices;
      taken_devices.insert(taken_devices.end(), placement.spare_devices.begin(),
                           placement.spare_devices.end());
      ASSERT_EQ(taken_devices.size(), taken.size());
      std::set<std::string> distinct;
      std::set<std::string> racks;
      for (std::size_t n = 0; n < taken.size(); ++n) {
        const NodeName& node = taken[n];
        ASSERT_TRUE(free.contains(node.value));
        ASSERT_TRUE(distinct.insert(node.value).second);
        for (const NodeName& excluded : request.exclude) ASSERT_NE(node, excluded);
        free[node.value] -= request.demand.ranks;
        ASSERT_GE(free[node.value], 0);
        ASSERT_EQ(std::popcount(taken_devices[n]), request.demand.device_count());
        ASSERT_EQ(taken_devices[n] & ~devices[node.value], 0u) << "a device in two allocations";
        devices[node.value] &= ~taken_devices[n];
        ASSERT_TRUE(request.demand.devices.kinds.empty() ||
                    AllAre("H100", *inventories[node.value], taken_devices[n]));
        racks.insert(inventories[node.value]->topology.rack);
      }
      if (MustBeInOneRack(request)) {
        ASSERT_LE(racks.size(), 1u);
      }
      // What it does not use there is still held.
      for (const HeldParts& held : request.held) {
        if (distinct.contains(held.node.value)) continue;
        free[held.node.value] -= held.parts.slots;
        devices[held.node.value] &= ~held.parts.devices;
      }
    }
    for (const WaitingJob& waiting : plan.waiting) {
      ASSERT_TRUE(seen.insert(waiting.job.value).second);
      ASSERT_FALSE(WaitText(waiting.reason).empty());
    }
    // A job that needs only spares does not wait for them.
    for (const GangRequest& request : snapshot.requests) {
      if (request.nodes == 0) seen.insert(request.job.value);
    }
    ASSERT_EQ(seen.size(), snapshot.requests.size());
  }
}

}  // namespace
}  // namespace muster
