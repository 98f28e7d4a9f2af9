// Which gangs give way to a job that waits, as whole passes decide it.

#include "coordinator/scheduler/victims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "coordinator/queues/share_tree.h"
#include "coordinator/scheduler/scheduler.h"

namespace muster {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const NodeInventory kNoDevices;

// Nodes with some slots each. Queue 0 is `default`, 1 is `a`, 2 is `b`.
class Victims : public testing::Test {
 protected:
  Victims() {
    snapshot_.now = TimePoint() + hours(100);
    tree_.queues.push_back({.name = "a"});
    tree_.queues.push_back({.name = "b"});
    snapshot_.queues = &tree_;
  }

  void Nodes(int count, int slots = 1) {
    for (int i = 1; i <= count; ++i)
      snapshot_.nodes.push_back({.name = NodeName{"n" + std::to_string(i)},
                                 .inventory = &kNoDevices,
                                 .all = {.slots = slots},
                                 .free = {.slots = slots}});
  }

  // A gang of so many slots on each of the nodes, which may be a victim.
  RunningGang& Running(const std::string& job, const std::vector<std::string>& nodes,
                       double cost = 10, int slots = 1) {
    const int count = static_cast<int>(nodes.size());
    RunningGang gang{.job = JobId{job},
                     .amounts = {.slots = count * slots},
                     .victim_from = snapshot_.now,
                     .nodes = count,
                     .least_nodes = count,
                     .node_amounts = {.slots = slots},
                     .leaves_in = minutes(2),
                     .cost = cost};
    for (const std::string& name : nodes) {
      gang.parts.push_back({NodeName{name}, {.slots = slots}});
      std::ranges::find(snapshot_.nodes, NodeName{name}, &NodeCapacity::name)->free.slots -= slots;
    }
    snapshot_.running.push_back(gang);
    return snapshot_.running.back();
  }

  GangRequest& Waits(const std::string& job, int nodes, int slots = 1) {
    GangRequest request;
    request.job = JobId{job};
    request.submit_order = snapshot_.requests.size();
    request.nodes = nodes;
    request.demand.ranks = slots;
    snapshot_.requests.push_back(request);
    return snapshot_.requests.back();
  }

  // "victim" or "victim->nodes", in the order of decisions.
  std::vector<std::string> Chosen() {
    plan_ = Plan(snapshot_);
    std::vector<std::string> chosen;
    for (const Reclaim& reclaim : plan_.reclaims)
      chosen.push_back(reclaim.victim.value + (reclaim.to_nodes > 0
                                                   ? "->" + std::to_string(reclaim.to_nodes)
                                                   : std::string()));
    return chosen;
  }

  QueueTree tree_ = DefaultTree();
  SchedulerSnapshot snapshot_;
  SchedulePlan plan_;
};

TEST_F(Victims, AHigherClassMakesALowerOneGiveWayAndIsPromisedItsNodes) {
  Nodes(1);
  Running("low", {"n1"});
  Waits("equal", 1);
  EXPECT_THAT(Chosen(), IsEmpty());
  Waits("high", 1).class_value = 1;
  EXPECT_THAT(Chosen(), ElementsAre("low"));
  EXPECT_EQ(plan_.reclaims[0].claimant.value, "high");
  EXPECT_EQ(plan_.reclaims[0].cause, ReclaimCause::kClass);
  ASSERT_EQ(plan_.waiting[0].job.value, "high");
  EXPECT_EQ(plan_.waiting[0].promise->start, snapshot_.now + minutes(2));
}

TEST_F(Victims, AGuaranteeIsTakenBackFromAQueueThatBorrows) {
  Nodes(2);
  tree_.queues[1].guarantee.slots = 1;
  Running("borrows", {"n1"});
  Running("too", {"n2"}, 5);
  Waits("own", 1).queue = 1;
  EXPECT_THAT(Chosen(), ElementsAre("too")) << "the cheaper one";
  EXPECT_EQ(plan_.reclaims[0].cause, ReclaimCause::kGuarantee);
  Waits("more", 1).queue = 1;
  EXPECT_THAT(Chosen(), ElementsAre("too")) << "the second one would borrow";
}

TEST_F(Victims, AQueueKeepsItsGuarantee) {
  Nodes(3);
  tree_.queues[1].guarantee.slots = 2;
  tree_.queues[2].guarantee.slots = 2;
  for (const char* node : {"n1", "n2", "n3"}) Running(std::string("of-") + node, {node}).queue = 2;
  Waits("own", 2).queue = 1;
  EXPECT_THAT(Chosen(), IsEmpty()) << "one of the three is borrowed, and it needs two";
  snapshot_.requests[0].nodes = 1;
  EXPECT_EQ(Chosen().size(), 1u);
}

TEST_F(Victims, AGuaranteeOfAParentIsNoClaimOnAChildOfIt) {
  Nodes(2);
  tree_.queues[0].guarantee.slots = 0;
  tree_.queues[1].leaf = false;
  tree_.queues[1].guarantee.slots = 4;
  tree_.queues[2].parent = 1;
  tree_.queues.push_back({.name = "c", .parent = 1});
  Running("sibling", {"n1"}).queue = 3;
  Running("outside", {"n2"}, 100).queue = 0;
  Waits("own", 1).queue = 2;
  EXPECT_THAT(Chosen(), ElementsAre("outside"));
}

// They are siblings below their queue.
TEST_F(Victims, UsersOfAQueueDoNotReclaimItsGuaranteeFromEachOther) {
  Nodes(2);
  tree_.queues[1].guarantee.slots = 2;
  ShareTree shares(tree_, /*by_user=*/true);
  snapshot_.queues = &shares.tree();
  Running("of-ada", {"n1"}).queue = shares.Add("a", "ada");
  RunningGang& outside = Running("outside", {"n2"}, 100);
  outside.queue = shares.Add("default", "ada");
  Waits("of-bob", 1).queue = shares.Add("a", "bob");
  EXPECT_THAT(Chosen(), ElementsAre("outside"));
  EXPECT_EQ(plan_.reclaims[0].cause, ReclaimCause::kGuarantee);
  outside.victim_from = kNever;
  EXPECT_THAT(Chosen(), IsEmpty());
}

TEST_F(Victims, AUserWithAllRunningJobsTakesThePlaceOfAnOwnOneOfALowerClass) {
  Nodes(3);
  tree_.queues[1].per_user.ceiling.jobs = 1;
  ShareTree shares(tree_, /*by_user=*/true);
  snapshot_.queues = &shares.tree();
  RunningGang& own = Running("own", {"n1"}, 100);
  own.queue = shares.Add("a", "ada");
  own.amounts.jobs = 1;
  Running("of-bob", {"n2"}, 1).queue = shares.Add("a", "bob");
  GangRequest& high = Waits("high", 1);
  high.queue = own.queue;
  high.class_value = 1;
  EXPECT_THAT(Chosen(), ElementsAre("own"));
}

TEST_F(Victims, NoGuaranteeMakesAHigherClassGiveWay) {
  Nodes(1);
  tree_.queues[1].guarantee.slots = 1;
  Running("high", {"n1"}).class_value = 1;
  Waits("own", 1).queue = 1;
  EXPECT_THAT(Chosen(), IsEmpty());
}

TEST_F(Victims, AnElasticGangShrinksBeforeAnotherIsPreempted) {
  Nodes(4);
  Running("elastic", {"n1", "n2", "n3"}, 1000).least_nodes = 1;
  Running("cheap", {"n4"}, 1);
  Waits("high", 1).class_value = 1;
  EXPECT_THAT(Chosen(), ElementsAre("elastic->2"));
  ASSERT_EQ(plan_.reclaims[0].gives_up.size(), 1u);
  EXPECT_EQ(plan_.waiting[0].promise->nodes, plan_.reclaims[0].gives_up);
  snapshot_.requests[0].nodes = 3;
  EXPECT_THAT(Chosen(), UnorderedElementsAre("cheap", "elastic->1"));
  snapshot_.requests[0].nodes = 4;
  EXPECT_THAT(Chosen(), UnorderedElementsAre("cheap", "elastic"));
}

TEST_F(Victims, TheCheapestSetForWhatIsNeededIsChosen) {
  Nodes(2, 4);
  Running("whole", {"n1"}, 15, 4);
  for (const char* job : {"p", "q", "r", "s"}) Running(job, {"n2"}, 5);
  Waits("high", 1, 4).class_value = 1;
  EXPECT_THAT(Chosen(), ElementsAre("whole")) << "four of 5 are 20";
  snapshot_.running[0].cost = 25;
  EXPECT_THAT(Chosen(), UnorderedElementsAre("p", "q", "r", "s"));
  snapshot_.requests[0].demand.ranks = 2;
  EXPECT_EQ(Chosen().size(), 2u) << "two of them are enough";
}

TEST_F(Victims, OfEqualOnesTheLowerClassThenTheBorrowerThenTheYoungestGoes) {
  Nodes(3);
  tree_.queues[1].guarantee.slots = 1;
  Running("guaranteed", {"n1"}).queue = 1;
  Running("old", {"n2"}).placed = snapshot_.now - hours(2);
  Running("young", {"n3"}).placed = snapshot_.now - hours(1);
  Waits("high", 1).class_value = 2;
  EXPECT_THAT(Chosen(), ElementsAre("young"));
  snapshot_.requests[0].nodes = 2;
  EXPECT_THAT(Chosen(), UnorderedElementsAre("young", "old"));
  snapshot_.running[2].class_value = snapshot_.running[1].class_value = 1;
  snapshot_.requests[0].nodes = 1;
  EXPECT_THAT(Chosen(), ElementsAre("guaranteed"));
}

TEST_F(Victims, AYoungGangIsWaitedFor) {
  Nodes(1);
  Running("young", {"n1"}).victim_from = snapshot_.now + minutes(4);
  Waits("high", 1).class_value = 1;
  EXPECT_THAT(Chosen(), IsEmpty());
  EXPECT_EQ(plan_.again_at, snapshot_.now + minutes(4));
  snapshot_.now += minutes(4);
  EXPECT_THAT(Chosen(), ElementsAre("young"));
  EXPECT_EQ(plan_.again_at, kNever);
}

TEST_F(Victims, AGangWithASilentNodeIsNoVictim) {
  Nodes(1);
  Running("low", {"n1"});
  Waits("high", 1).class_value = 1;
  snapshot_.nodes[0].usable_from = snapshot_.now + minutes(1);
  EXPECT_THAT(Chosen(), IsEmpty());
}

TEST_F(Victims, NoMoreGiveWayWhileSomeDo) {
  Nodes(2);
  RunningGang& leaves = Running("leaves", {"n1"});
  leaves.gives_way_to = JobId{"high"};
  leaves.victim_from = kNever;
  leaves.ends = snapshot_.now + minutes(1);
  Running("other", {"n2"});
  Waits("high", 1).class_value = 1;
  EXPECT_THAT(Chosen(), IsEmpty());
  EXPECT_EQ(plan_.waiting[0].promise->start, snapshot_.now + minutes(1));
  Waits("next", 1).class_value = 1;
  EXPECT_THAT(Chosen(), ElementsAre("other")) << "what leaves is kept for the first one";
}

TEST_F(Victims, NoneGivesWayToAJobThatStartsSoonAnyway) {
  Nodes(2);
  Running("ends", {"n1"}).ends = snapshot_.now + minutes(1);
  Running("other", {"n2"});
  Waits("high", 1).class_value = 1;
  EXPECT_THAT(Chosen(), IsEmpty());
}

TEST_F(Victims, RecoveriesAndSparesHaveNoVictims) {
  Nodes(1);
  Running("low", {"n1"});
  Waits("recovers", 1).class_value = 1;
  snapshot_.requests[0].recovering = true;
  Waits("spare", 0).class_value = 1;
  snapshot_.requests[1].spares = 1;
  EXPECT_THAT(Chosen(), IsEmpty());
}

TEST_F(Victims, AJobOverItsQueuesCeilingTakesThePlaceOfALowerClassThere) {
  Nodes(3);
  tree_.queues[1].ceiling.slots = 1;
  Running("same-queue", {"n1"}, 100).queue = 1;
  Running("other", {"n2"}, 1);
  GangRequest& high = Waits("high", 1);
  high.queue = 1;
  high.class_value = 1;
  EXPECT_THAT(Chosen(), ElementsAre("same-queue"));
}

TEST_F(Victims, NodesThatCannotBecomeFreeCostNoGang) {
  Nodes(2, 2);
  Running("stays", {"n1"}).class_value = 5;
  Running("beside", {"n1"}, 1);
  Running("large", {"n2"}, 50, 2);
  Waits("high", 1, 2).class_value = 1;
  EXPECT_THAT(Chosen(), ElementsAre("large"));
}

// Two of four slots of `b` are borrowed: n1 cannot become free, n2 can.
TEST_F(Victims, AnotherNodeIsTakenWhereAGuaranteeKeepsTheRestOfTheFirstOne) {
  Nodes(2, 2);
  tree_.queues[1].guarantee.slots = 2;
  tree_.queues[2].guarantee.slots = 1;
  Running("b1", {"n1"}, 1).queue = 2;
  Running("b2", {"n1"}, 1).queue = 2;
  Running("d1", {"n2"}, 50);
  Running("d2", {"n2"}, 50);
  Waits("own", 1, 2).queue = 1;
  EXPECT_THAT(Chosen(), UnorderedElementsAre("d1", "d2"));
}

// A cheap gang's node came first, then the queue's guarantee kept the other two from being freed
// and they were looked at no more: the cheap gang gave way although the wide one was enough.
TEST_F(Victims, ANodeThatAGuaranteeKeptCountsAgainWhenOthersGiveWay) {
  Nodes(4, 3);
  tree_.queues[1].guarantee.slots = 10;
  tree_.queues[2].guarantee.slots = 1;
  Running("wide", {"n1", "n2", "n3"}, 24, 2).queue = 2;
  Running("small", {"n1", "n2"}, 12).queue = 2;
  Running("own", {"n3"}).queue = 1;
  Running("cheap", {"n4"}, 4, 2);
  Waits("claimant", 2, 2).queue = 1;
  EXPECT_THAT(Chosen(), ElementsAre("wide"));
}

}  // namespace
}  // namespace muster
