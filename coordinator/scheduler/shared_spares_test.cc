// Spares that jobs share, and what of them is lent: who gets what in a pass.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <random>
#include <set>
#include <string>

#include "coordinator/scheduler/scheduler.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const NodeInventory kNoDevices;

NodeCapacity Node(const std::string& name, int free, int shared = 0, int lent = 0) {
  NodeCapacity node{
      .name = NodeName{name}, .inventory = &kNoDevices, .all = {.slots = free + shared + lent}};
  node.free.slots = free;
  node.shared.slots = shared;
  node.lent.slots = lent;
  return node;
}

GangRequest Request(const std::string& id, int nodes, int ranks = 1) {
  GangRequest request;
  request.job = JobId{id};
  request.submit_order = static_cast<std::uint64_t>(id.back());
  request.nodes = nodes;
  request.demand.ranks = ranks;
  return request;
}
GangRequest Guarded(const std::string& id, int nodes, int spares, int ranks = 1) {
  GangRequest request = Request(id, nodes, ranks);
  request.spares = spares;
  request.share_spares = true;
  return request;
}
GangRequest Recovering(const std::string& id, int nodes, int ranks = 1) {
  GangRequest request = Guarded(id, nodes, 0, ranks);
  request.recovering = true;
  return request;
}
GangRequest Preemptible(const std::string& id, int nodes, int ranks = 1) {
  GangRequest request = Request(id, nodes, ranks);
  request.preemptible = true;
  return request;
}

SchedulePlan PlanFor(std::vector<NodeCapacity> nodes, std::vector<GangRequest> requests) {
  SchedulerSnapshot snapshot;
  snapshot.nodes = std::move(nodes);
  snapshot.requests = std::move(requests);
  return Plan(snapshot);
}

NodeName N(const std::string& name) { return NodeName{name}; }

TEST(SharedSparesTest, WhatIsSharedAlreadyIsTakenBeforeWhatIsFree) {
  const SchedulePlan plan =
      PlanFor({Node("n1", 1), Node("n2", 1), Node("n3", 0, 1)}, {Guarded("a", 1, 1)});
  EXPECT_THAT(plan.placements.at(0).nodes, ElementsAre(N("n1")));
  EXPECT_THAT(plan.placements.at(0).spares, ElementsAre(N("n3")));
}

TEST(SharedSparesTest, TwoJobsOfAPassShareANewOne) {
  const SchedulePlan plan = PlanFor({Node("n1", 1), Node("n2", 1), Node("n3", 1)},
                                    {Guarded("a", 1, 1), Guarded("b", 1, 1)});
  ASSERT_EQ(plan.placements.size(), 2u);
  EXPECT_EQ(plan.placements[0].spares, plan.placements[1].spares);
}

TEST(SharedSparesTest, ALargerJobAddsWhatItNeedsMore) {
  const SchedulePlan plan =
      PlanFor({Node("n1", 4), Node("n2", 2, 2)}, {Guarded("a", 1, 1, 4), Request("b", 1)});
  EXPECT_THAT(plan.placements.at(0).spares, ElementsAre(N("n2")));
  EXPECT_EQ(plan.waiting.size(), 1u) << "nothing is free any more";
}

TEST(SharedSparesTest, OnlyAJobThatRecoversAndSharesTakesOne) {
  const std::vector<NodeCapacity> nodes = {Node("n1", 0, 1)};
  EXPECT_EQ(PlanFor(nodes, {Guarded("a", 1, 0)}).waiting.size(), 1u);
  GangRequest other = Request("b", 1);
  other.recovering = true;
  EXPECT_EQ(PlanFor(nodes, {other}).waiting.size(), 1u);
  EXPECT_THAT(PlanFor(nodes, {Recovering("c", 1)}).placements.at(0).nodes, ElementsAre(N("n1")));
}

TEST(SharedSparesTest, TwoThatRecoverDoNotGetTheSameOne) {
  const SchedulePlan plan = PlanFor({Node("n1", 0, 1)}, {Recovering("a", 1), Recovering("b", 1)});
  EXPECT_EQ(plan.placements.size(), 1u);
  EXPECT_EQ(plan.waiting.size(), 1u);
}

TEST(SharedSparesTest, APreemptibleJobPrefersThemAndIsMarked) {
  const SchedulePlan plan =
      PlanFor({Node("n1", 1), Node("n2", 0, 1)}, {Preemptible("a", 1), Request("b", 1)});
  EXPECT_THAT(plan.placements.at(0).nodes, ElementsAre(N("n2")));
  EXPECT_THAT(plan.placements.at(0).lent, ElementsAre(N("n2")));
  EXPECT_THAT(plan.placements.at(1).nodes, ElementsAre(N("n1")));
  EXPECT_THAT(plan.placements.at(1).lent, IsEmpty());
}

TEST(SharedSparesTest, AJobThatRecoversWaitsForWhatIsLentAndKeepsTheRest) {
  const SchedulePlan plan =
      PlanFor({Node("n1", 1), Node("n2", 0, 0, 1)}, {Recovering("a", 2), Request("b", 1)});
  EXPECT_THAT(plan.placements, IsEmpty());
  ASSERT_EQ(plan.waiting.size(), 2u);
  EXPECT_THAT(plan.waiting[0].clears, ElementsAre(N("n2")));
  EXPECT_THAT(plan.waiting[1].clears, IsEmpty()) << "it has no node of the other's";
}

TEST(SharedSparesTest, ItDoesNotShrinkWhereALentNodeMakesItWhole) {
  GangRequest request = Recovering("a", 2);
  request.min_nodes = 1;
  const SchedulePlan plan = PlanFor({Node("n1", 1), Node("n2", 0, 0, 1)}, {request});
  EXPECT_THAT(plan.waiting.at(0).clears, ElementsAre(N("n2")));
}

TEST(SharedSparesTest, ABorrowerThatRecoversBehindItFindsItsPlaceTaken) {
  GangRequest borrower = Preemptible("b", 1);
  borrower.recovering = true;
  borrower.former_nodes = {N("n1")};
  borrower.held = {{.node = N("n1"), .parts = {.slots = 1}, .lent = true}};
  EXPECT_THAT(PlanFor({Node("n1", 0, 0, 1)}, {borrower}).placements.at(0).lent,
              ElementsAre(N("n1")));
  const SchedulePlan plan = PlanFor({Node("n1", 0, 0, 1)}, {Recovering("a", 1), borrower});
  EXPECT_THAT(plan.placements, IsEmpty());
  EXPECT_THAT(plan.waiting.at(0).clears, ElementsAre(N("n1")));
}

// --- properties ---

// What a pass takes of a node, by the use that it may have.
struct Taken {
  int own = 0;             // from what is free, and by jobs that recover from what is shared
  int lent = 0;            // by preemptible jobs
  int awaited = 0;         // by jobs that wait for it to be cleared
  int spare = 0;           // the largest shared spare
  std::set<JobId> takers;  // that recover
};

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int Pick(int from, int to) { return std::uniform_int_distribution<>(from, to)(engine_); }
  bool Chance(int percent) { return Pick(1, 100) <= percent; }

 private:
  std::mt19937 engine_;
};

SchedulerSnapshot RandomSnapshot(Random& random, const NodeInventory& inventory) {
  SchedulerSnapshot snapshot;
  for (int i = 0; i < 6; ++i) {
    NodeCapacity node = Node("n" + std::to_string(i), 0);
    node.inventory = &inventory;
    node.all = {.slots = 4, .devices = 0xf};
    for (int device = 0; device < 4; ++device) {
      NodeParts* of[] = {&node.free, &node.shared, &node.lent, nullptr};
      NodeParts* parts = of[random.Pick(0, 3)];
      if (parts == nullptr) continue;
      ++parts->slots;
      parts->devices |= DeviceMask{1} << device;
    }
    snapshot.nodes.push_back(node);
  }
  for (int i = 0; i < 6; ++i) {
    GangRequest request = Request("j" + std::to_string(i), random.Pick(1, 3), random.Pick(1, 3));
    request.demand.devices.per_rank = random.Chance(50) ? 1 : 0;
    request.share_spares = random.Chance(60);
    request.spares = request.share_spares ? random.Pick(1, 2) : 0;
    request.recovering = random.Chance(40);
    request.preemptible = !request.share_spares && random.Chance(60);
    if (random.Chance(20)) request.nodes = 0, request.recovering = false;
    snapshot.requests.push_back(request);
  }
  return snapshot;
}

const GangRequest& Of(const SchedulerSnapshot& snapshot, const JobId& job) {
  return *std::ranges::find(snapshot.requests, job, &GangRequest::job);
}

// Counts what the plan takes of each node, and that no device is taken twice.
std::map<NodeName, Taken> Count(const SchedulerSnapshot& snapshot, const SchedulePlan& plan) {
  std::map<NodeName, Taken> taken;
  std::map<NodeName, DeviceMask> devices;
  for (const GangPlacement& placement : plan.placements) {
    const GangRequest& request = Of(snapshot, placement.job);
    for (std::size_t i = 0; i < placement.nodes.size(); ++i) {
      const NodeName& name = placement.nodes[i];
      const bool lent = std::ranges::count(placement.lent, name) > 0;
      EXPECT_TRUE(!lent || request.preemptible);
      (lent ? taken[name].lent : taken[name].own) += request.demand.ranks;
      if (request.recovering && request.share_spares) taken[name].takers.insert(placement.job);
      EXPECT_EQ(devices[name] & placement.node_devices[i], 0u) << name.value;
      devices[name] |= placement.node_devices[i];
    }
    if (!request.share_spares) {
      EXPECT_THAT(placement.spares, IsEmpty());
    }
    for (const NodeName& name : placement.spares)
      taken[name].spare = std::max(taken[name].spare, request.demand.ranks);
  }
  for (const WaitingJob& waiting : plan.waiting) {
    const GangRequest& request = Of(snapshot, waiting.job);
    EXPECT_TRUE(waiting.clears.empty() || (request.recovering && request.share_spares));
    for (const NodeName& name : waiting.clears) taken[name].awaited += request.demand.ranks;
  }
  return taken;
}

TEST(SharedSparesProperty, NothingIsGivenTwiceAndWhatIsSharedOnlyToWhoMayHaveIt) {
  NodeInventory inventory;
  for (int i = 0; i < 4; ++i) inventory.devices.push_back({.id = "GPU-" + std::to_string(i)});
  int lent = 0, awaited = 0, taken_over = 0, shared = 0;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    Random random(seed);
    const SchedulerSnapshot snapshot = RandomSnapshot(random, inventory);
    const SchedulePlan plan = Plan(snapshot);
    const std::map<NodeName, Taken> taken = Count(snapshot, plan);
    for (const NodeCapacity& node : snapshot.nodes) {
      const auto found = taken.find(node.name);
      if (found == taken.end()) continue;
      const Taken& of = found->second;
      const int free = node.free.slots, empty = node.shared.slots, borrowed = node.lent.slots;
      ASSERT_LE(of.own + of.lent + of.awaited, free + empty + borrowed) << "seed " << seed;
      // Who waits for a node's lent part may take all of it; else what runs there stays.
      if (of.awaited == 0) {
        ASSERT_LE(of.own + of.lent, free + empty) << "seed " << seed;
      }
      if (of.takers.empty() && of.awaited == 0) {
        ASSERT_LE(of.own, free) << "seed " << seed;
      }
      lent += of.lent, awaited += of.awaited, shared += of.spare;
      taken_over += of.own > free ? 1 : 0;
    }
    for (const GangPlacement& placement : plan.placements)
      for (const NodeName& spare : placement.spares)
        ASSERT_EQ(std::ranges::count(placement.nodes, spare), 0) << "seed " << seed;
    if (HasFailure()) return;
  }
  EXPECT_GT(lent, 100);
  EXPECT_GT(awaited, 100);
  EXPECT_GT(taken_over, 100);
  EXPECT_GT(shared, 100);
}

}  // namespace
}  // namespace muster
