#include "coordinator/pilots/pool_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class PoolPlannerTest : public testing::Test {
 protected:
  PoolPlannerTest() {
    config_.max_nodes = 4;
    config_.idle_timeout_seconds = 60;
    config_.stop_lead_seconds = 100;
  }

  PoolPlan Plan() {
    planner_.SetConfig(config_);
    return planner_.Plan(facts_, now_);
  }
  // "submit -n1", "cancel p1", "drain n1"; in the plan's order.
  std::vector<std::string> Actions() {
    std::vector<std::string> words;
    for (const PoolAction& action : Plan().actions) words.push_back(Word(action));
    return words;
  }
  static std::string Word(const PoolAction& action) {
    if (const auto* submit = std::get_if<SubmitPilot>(&action)) {
      std::string word = "submit";
      for (const std::string& name : submit->exclude) word += " -" + name;
      return word;
    }
    if (const auto* cancel = std::get_if<CancelPilot>(&action)) {
      std::string word = "cancel " + cancel->key;
      for (const std::string& name : cancel->bad_nodes) word += " !" + name;
      return word;
    }
    return "drain " + std::get<DrainPoolNode>(action).node;
  }

  PilotFact& Pending(const std::string& key) {
    facts_.pilots.push_back({.key = key, .phase = PilotPhase::kPending});
    return facts_.pilots.back();
  }
  PilotFact& Running(const std::string& key, const std::string& node, bool busy = false) {
    facts_.pilots.push_back({.key = key,
                             .phase = PilotPhase::kRunning,
                             .nodes = {node},
                             .seconds_running = 1000,
                             .seconds_left = 10000});
    facts_.nodes.push_back({.name = node, .busy = busy, .pilot = key});
    return facts_.pilots.back();
  }
  void Need(int nodes, std::vector<std::string> exclude = {}, bool partly = false) {
    facts_.needs.push_back({"job j", nodes, partly, std::move(exclude)});
  }

  PoolConfig config_;
  PoolPlanner planner_;
  PoolFacts facts_;
  TimePoint now_ = TimePoint(minutes(60));
};

TEST_F(PoolPlannerTest, APoolWithoutDemandStaysEmpty) { EXPECT_THAT(Actions(), IsEmpty()); }

TEST_F(PoolPlannerTest, AQueuedJobGetsItsNodes) {
  Need(2, {"n9"});
  facts_.avoid = {"n3"};
  EXPECT_THAT(Actions(), ElementsAre("submit -n3 -n9", "submit -n3 -n9"));
}

TEST_F(PoolPlannerTest, WhatIsThereOrComingIsNotAskedForAgain) {
  Need(3);
  Pending("p1");
  Running("p2", "n2");
  facts_.nodes.push_back({.name = "fixed"});
  EXPECT_THAT(Actions(), IsEmpty());
}

TEST_F(PoolPlannerTest, ANodeThatTheJobExcludesIsNoSupply) {
  Need(2, {"n1"});
  Running("p1", "n1");
  Pending("p2");  // may become n1
  EXPECT_THAT(Actions(), ElementsAre("submit -n1", "submit -n1"));
  facts_.pilots[1].exclude = {"n1", "n7"};
  EXPECT_THAT(Actions(), ElementsAre("submit -n1"));
}

TEST_F(PoolPlannerTest, AGangAboveTheLimitGetsNoPartOfIt) {
  Running("p1", "n1", /*busy=*/true);
  Need(4);
  const PoolPlan plan = Plan();
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_THAT(plan.condition, HasSubstr("above max_nodes"));
  facts_.needs.front().partly = true;
  EXPECT_EQ(Actions().size(), 3u);
}

TEST_F(PoolPlannerTest, SparesAndTheLeastNumberAreKept) {
  config_.spares = 1;
  config_.min_nodes = 2;
  EXPECT_THAT(Actions(), ElementsAre("submit", "submit"));
  Pending("p1");
  Running("p2", "n2", /*busy=*/true);
  EXPECT_THAT(Actions(), IsEmpty());
  facts_.nodes[0].busy = false;
  facts_.nodes.push_back({.name = "busy", .busy = true});
  EXPECT_THAT(Actions(), IsEmpty());
}

TEST_F(PoolPlannerTest, UnitsOfSeveralNodesCountAsSuch) {
  config_.nodes_per_pilot = 2;
  Need(1);
  Need(2);
  EXPECT_THAT(Actions(), ElementsAre("submit", "submit"));
  Need(1);
  EXPECT_EQ(Actions().size(), 2u) << "max_nodes, and what is left over serves the last";
}

TEST_F(PoolPlannerTest, AnIdlePilotIsDrainedThenCancelled) {
  Running("p1", "n1");
  EXPECT_THAT(Actions(), IsEmpty());
  now_ += seconds(59);
  EXPECT_THAT(Actions(), IsEmpty());
  now_ += seconds(2);
  EXPECT_THAT(Actions(), ElementsAre("drain n1"));
  facts_.nodes[0].state = PoolNodeState::kLeaving;
  EXPECT_THAT(Actions(), ElementsAre("cancel p1"));
}

TEST_F(PoolPlannerTest, AJobInBetweenLetsTheTimeBeginAnew) {
  Running("p1", "n1");
  (void)Actions();
  now_ += seconds(50);
  facts_.nodes[0].busy = true;
  (void)Actions();
  facts_.nodes[0].busy = false;
  now_ += seconds(50);
  EXPECT_THAT(Actions(), IsEmpty());
}

TEST_F(PoolPlannerTest, TheOneWithTheMostTimeLeftLeavesLastAndTheLeastNumberStays) {
  config_.min_nodes = 1;
  Running("p1", "n1").seconds_left = 9000;
  Running("p2", "n2").seconds_left = 5000;
  Pending("p3");
  (void)Actions();
  now_ += seconds(61);
  EXPECT_THAT(Actions(), ElementsAre("cancel p3"));
  facts_.pilots.pop_back();
  EXPECT_THAT(Actions(), ElementsAre("drain n2"));
  facts_.pilots.pop_back();
  facts_.nodes.pop_back();
  EXPECT_THAT(Actions(), IsEmpty());
}

TEST_F(PoolPlannerTest, ALostNodesPilotIsCancelledAndReplacedWithoutIt) {
  Running("p1", "n1", /*busy=*/true);
  Running("p2", "n2", /*busy=*/true);
  facts_.nodes[1].state = PoolNodeState::kBad;
  Need(1, {}, /*partly=*/true);
  EXPECT_THAT(Actions(), ElementsAre("submit -n2", "cancel p2 !n2"));
  facts_.pilots[1].phase = PilotPhase::kEnding;
  facts_.avoid = {"n2"};
  EXPECT_THAT(Actions(), ElementsAre("submit -n2"));
}

TEST_F(PoolPlannerTest, APilotWhoseNodeNeverComesIsReplaced) {
  Running("p1", "n1").seconds_running = 299;
  facts_.nodes.clear();
  Need(1);
  EXPECT_THAT(Actions(), IsEmpty());
  facts_.pilots[0].seconds_running = 301;
  EXPECT_THAT(Actions(), ElementsAre("submit -n1", "cancel p1 !n1"));
  facts_.nodes.push_back({.name = "n1", .pilot = "an older one"});
  EXPECT_THAT(Actions(), ElementsAre("submit -n1", "cancel p1 !n1"));
}

TEST_F(PoolPlannerTest, AUnitThatLosesANodeLeavesAsAWhole) {
  config_.nodes_per_pilot = 2;
  Running("p1", "n1", /*busy=*/true).nodes = {"n1", "n2"};
  facts_.nodes.push_back({.name = "n2", .state = PoolNodeState::kBad, .pilot = "p1"});
  EXPECT_THAT(Actions(), ElementsAre("drain n1"));
  facts_.nodes[0].state = PoolNodeState::kLeaving;
  EXPECT_THAT(Actions(), IsEmpty());
  facts_.nodes[0].busy = false;
  EXPECT_THAT(Actions(), ElementsAre("cancel p1 !n2"));
}

TEST_F(PoolPlannerTest, APilotNearItsEndIsReplacedBeforeItsNodeIsDrained) {
  Running("p1", "n1", /*busy=*/true).seconds_left = 199;
  config_.max_nodes = 1;  // what leaves does not count
  EXPECT_THAT(Actions(), ElementsAre("submit"));
  Pending("p2");
  EXPECT_THAT(Actions(), IsEmpty());
  facts_.pilots.pop_back();
  Running("p2", "n2");
  const PoolPlan plan = Plan();
  ASSERT_EQ(plan.actions.size(), 1u);
  const auto& drain = std::get<DrainPoolNode>(plan.actions[0]);
  EXPECT_EQ(drain.node, "n1");
  EXPECT_NEAR(drain.by_seconds, 194, 0.1);
  EXPECT_THAT(drain.why, HasSubstr("its pilot job p1 ends soon"));
}

TEST_F(PoolPlannerTest, WithoutAReplacementItIsDrainedAtItsLead) {
  Running("p1", "n1", /*busy=*/true).seconds_left = 101;
  Pending("p2");
  EXPECT_THAT(Actions(), IsEmpty());
  facts_.pilots[0].seconds_left = 99;
  EXPECT_THAT(Actions(), ElementsAre("drain n1"));
}

TEST_F(PoolPlannerTest, TheLeadFollowsTheCheckpointsAndLeavesAPilotHalfOfItsLife) {
  config_.stop_lead_seconds = 0;
  facts_.checkpoint_seconds = 300;  // twice, and a minute
  Running("p1", "n1", /*busy=*/true).seconds_left = 1400;
  facts_.pilots[0].seconds_running = 9000;
  EXPECT_THAT(Actions(), IsEmpty());
  facts_.pilots[0].seconds_left = 1300;
  EXPECT_THAT(Actions(), ElementsAre("submit"));
  facts_.pilots[0].seconds_running = 1200;
  EXPECT_THAT(Actions(), IsEmpty());
}

TEST_F(PoolPlannerTest, AnIdlePilotNearItsEndLeavesWithoutReplacement) {
  Running("p1", "n1").seconds_left = 150;
  EXPECT_THAT(Actions(), ElementsAre("drain n1"));
}

TEST_F(PoolPlannerTest, ANodeThatAUserDrainsIsReplacedAndGivenBack) {
  Running("p1", "n1", /*busy=*/true);
  facts_.nodes[0].state = PoolNodeState::kLeaving;
  EXPECT_THAT(Actions(), ElementsAre("submit"));
  facts_.nodes[0].busy = false;
  EXPECT_THAT(Actions(), ElementsAre("cancel p1"));
}

TEST_F(PoolPlannerTest, FailuresAreWaitedForLongerAndLonger) {
  Need(1);
  planner_.OnFailure(now_);
  const PoolPlan plan = Plan();
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_THAT(plan.condition, HasSubstr("failed 1 times in a row"));
  now_ += seconds(6);
  EXPECT_THAT(Actions(), ElementsAre("submit"));
  planner_.OnFailure(now_);
  now_ += seconds(6);
  EXPECT_THAT(Actions(), IsEmpty());
  planner_.OnSuccess();
  EXPECT_THAT(Actions(), ElementsAre("submit"));
  for (int n = 0; n < 40; ++n) planner_.OnFailure(now_);
  now_ += PoolPlanner::kLongestPause;
  EXPECT_THAT(Actions(), ElementsAre("submit"));
}

TEST_F(PoolPlannerTest, SubmitsAreBoundedByTheMinuteAndByWhatWaits) {
  config_.max_nodes = 100;
  config_.submits_per_minute = 3;
  Need(50, {}, true);
  EXPECT_EQ(Actions().size(), 3u);
  EXPECT_THAT(Plan().condition, HasSubstr("submits_per_minute"));
  now_ += seconds(61);
  config_.max_pending = 1;
  EXPECT_EQ(Actions().size(), 1u);
  Pending("p1");
  EXPECT_THAT(Actions(), IsEmpty());
}

}  // namespace
}  // namespace muster
