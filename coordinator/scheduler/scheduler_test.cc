#include "coordinator/scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

NodeCapacity MakeNode(const std::string& name, int slots, int free) {
  return {NodeName{name}, slots, free};
}

GangRequest Request(const std::string& id, std::uint64_t order, int nodes, int ranks) {
  GangRequest request;
  request.job = JobId{id};
  request.submit_order = order;
  request.nodes = nodes;
  request.ranks_per_node = ranks;
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

TEST(SchedulerTest, AJobOfGpusIsNotPlacedWhereThereAreNone) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 1, 1)};
  snapshot.requests[0].needs_gpus = true;
  snapshot.nodes = {MakeNode("n1", 8, 8), MakeNode("n2", 8, 8)};
  snapshot.nodes[0].without_gpus = true;
  const SchedulePlan placed = Plan(snapshot);
  ASSERT_EQ(placed.placements.size(), 1u);
  EXPECT_THAT(Names(placed.placements[0]), ElementsAre("n2"));
  // A node that does not say so may have some: its own check decides.
  snapshot.nodes[1].without_gpus = true;
  const SchedulePlan waiting = Plan(snapshot);
  ASSERT_EQ(waiting.waiting.size(), 1u);
  EXPECT_THAT(WaitText(waiting.waiting[0].reason),
              HasSubstr("2 ready nodes have no GPU (resources.device: cuda)"));
  snapshot.requests[0].needs_gpus = false;
  EXPECT_THAT(Placed(Plan(snapshot)), ElementsAre("a"));
}

// Both would get GPUs 0 to 3 of the same 8: GPUs are given out by local rank.
TEST(SchedulerTest, TwoGpuJobsAreNeverPlacedOnOneNode) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 1, 4), Request("b", 2, 1, 4), Request("cpu", 3, 1, 4)};
  snapshot.requests[0].needs_gpus = true;
  snapshot.requests[1].needs_gpus = true;
  snapshot.nodes = {MakeNode("n1", 8, 8)};
  const SchedulePlan one = Plan(snapshot);
  EXPECT_THAT(Placed(one), ElementsAre("a"));
  ASSERT_EQ(one.waiting.size(), 2u);
  EXPECT_EQ(WaitText(one.waiting[0].reason),
            "needs 1 node with 4 free slots; no ready node has room, 1 has free slots but its GPUs "
            "are in use by job a (a node runs one GPU job at a time)");
  snapshot.nodes.push_back(MakeNode("n2", 8, 8));
  const SchedulePlan two = Plan(snapshot);
  EXPECT_THAT(Placed(two), ElementsAre("a", "b", "cpu"));
  EXPECT_THAT(Names(two.placements[1]), ElementsAre("n2"));
}

TEST(SchedulerTest, GpusInUseByAnotherJobKeepAGpuJobAwayButNotItsOwnNorOneWithoutGpus) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 1, 4)};
  snapshot.requests[0].needs_gpus = true;
  snapshot.nodes = {MakeNode("n1", 8, 4), MakeNode("n2", 8, 4)};
  for (NodeCapacity& node : snapshot.nodes) node.gpu_jobs = {JobId{"x"}};
  const SchedulePlan waiting = Plan(snapshot);
  ASSERT_EQ(waiting.waiting.size(), 1u);
  EXPECT_THAT(WaitText(waiting.waiting[0].reason),
              HasSubstr("2 have free slots but their GPUs are in use by other jobs"));
  snapshot.nodes[1].gpu_jobs = {JobId{"a"}};  // parked, say
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n2"));
  snapshot.requests[0].needs_gpus = false;
  snapshot.nodes[1].gpu_jobs = {JobId{"x"}};
  EXPECT_THAT(Placed(Plan(snapshot)), ElementsAre("a"));
}

TEST(SchedulerTest, ASpareOfAGpuJobHasItsNodesGpus) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 1, 4), Request("b", 2, 1, 4)};
  for (GangRequest& request : snapshot.requests) request.needs_gpus = true;
  snapshot.requests[0].spares = 1;
  snapshot.nodes = {MakeNode("n1", 8, 8), MakeNode("n2", 8, 8)};
  const SchedulePlan plan = Plan(snapshot);
  EXPECT_THAT(Placed(plan), ElementsAre("a"));
  EXPECT_THAT(plan.placements[0].spares, ElementsAre(NodeName{"n2"}));
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
            "needs 2 nodes with 1 free slot each; 1 ready node has room");
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
  EXPECT_THAT(WaitText(Plan(snapshot).waiting.at(0).reason), HasSubstr("not excluded"));
}

TEST(SchedulerTest, RecoveringJobKeepsItsNodesAndTheirOrder) {
  SchedulerSnapshot snapshot;
  snapshot.requests = {Request("a", 1, 3, 1)};
  snapshot.requests[0].former_nodes = {NodeName{"n3"}, NodeName{"n1"}, NodeName{"n4"}};
  snapshot.nodes = {MakeNode("n1", 1, 1), MakeNode("n2", 1, 1), MakeNode("n3", 1, 1),
                    MakeNode("n4", 1, 1)};
  EXPECT_THAT(Names(Plan(snapshot).placements.at(0)), ElementsAre("n3", "n1", "n4"));
  snapshot.nodes[0].free_slots = 0;
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
  return {NodeName{name}, 1, 1, domain};
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
  snapshot.requests[1].held = {{NodeName{"n1"}, 1}};
  snapshot.nodes = {MakeNode("n1", 1, 0)};
  EXPECT_TRUE(Plan(snapshot).placements.empty()) << "the node is kept for the job ahead";
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

SchedulerSnapshot RandomSnapshot(std::mt19937& random) {
  auto pick = [&random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  SchedulerSnapshot snapshot;
  for (int i = 0, n = pick(0, 8); i < n; ++i) {
    const int slots = pick(0, 8);
    snapshot.nodes.push_back(MakeNode("n" + std::to_string(i), slots, pick(0, slots)));
    if (pick(0, 4) == 0)
      snapshot.nodes.back().gpu_jobs.push_back(JobId{"j" + std::to_string(pick(0, 12))});
  }
  for (int i = 0, n = pick(0, 10); i < n; ++i) {
    GangRequest request = Request("j" + std::to_string(i), i, pick(1, 4), pick(1, 4));
    request.priority = pick(0, 3);
    request.needs_gpus = pick(0, 1) == 0;
    for (int k = pick(0, 2); k > 0; --k) {
      request.exclude.push_back(NodeName{"n" + std::to_string(pick(0, 8))});
    }
    if (pick(0, 1) == 0) request.min_nodes = pick(1, request.nodes);
    request.spares = pick(0, 2);
    if (pick(0, 4) == 0) request.held.push_back({NodeName{"n" + std::to_string(pick(0, 8))}, 1});
    if (pick(0, 6) == 0) request.nodes = 0;
    for (int k = pick(0, 4); k > 0; --k) {
      request.former_nodes.push_back(NodeName{"n" + std::to_string(pick(0, 8))});
    }
    snapshot.requests.push_back(request);
  }
  return snapshot;
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
    std::map<std::string, std::set<JobId>> gpu_jobs;
    for (const NodeCapacity& node : snapshot.nodes) {
      free[node.name.value] = node.free_slots;
      gpu_jobs[node.name.value].insert(node.gpu_jobs.begin(), node.gpu_jobs.end());
    }
    std::set<std::string> seen;
    for (const GangPlacement& placement : plan.placements) {
      const GangRequest& request = *requests.at(placement.job.value);
      ASSERT_TRUE(seen.insert(placement.job.value).second);
      ASSERT_LE(placement.nodes.size(), static_cast<std::size_t>(request.nodes));
      ASSERT_GE(placement.nodes.size(), static_cast<std::size_t>(request.least()));
      ASSERT_LE(placement.spares.size(), static_cast<std::size_t>(request.spares));
      for (const HeldSlots& held : request.held) free[held.node.value] += held.slots;
      std::vector<NodeName> taken = placement.nodes;
      taken.insert(taken.end(), placement.spares.begin(), placement.spares.end());
      std::set<std::string> distinct;
      for (const NodeName& node : taken) {
        ASSERT_TRUE(free.contains(node.value));
        ASSERT_TRUE(distinct.insert(node.value).second);
        for (const NodeName& excluded : request.exclude) ASSERT_NE(node, excluded);
        free[node.value] -= request.ranks_per_node;
        ASSERT_GE(free[node.value], 0);
        if (!request.needs_gpus) continue;
        gpu_jobs[node.value].insert(placement.job);
        ASSERT_EQ(gpu_jobs[node.value].size(), 1u) << "two GPU jobs on one node";
      }
      // What it does not use there is still held.
      for (const HeldSlots& held : request.held) {
        if (!distinct.contains(held.node.value)) free[held.node.value] -= held.slots;
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
