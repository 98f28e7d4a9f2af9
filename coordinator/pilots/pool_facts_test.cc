#include "coordinator/pilots/pool_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

PoolFacts Read(const ControlHarness& h) { return ReadPoolFacts(h.controller()); }

const PoolNodeFact& FactOf(const PoolFacts& facts, const std::string& node) {
  static const PoolNodeFact kNone;
  for (const PoolNodeFact& fact : facts.nodes)
    if (fact.name == node) return fact;
  ADD_FAILURE() << "nothing of " << node;
  return kNone;
}

TEST(PoolFactsTest, AQueuedJobLacksAllOfItsNodes) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml());
  const PoolFacts facts = Read(h);
  ASSERT_EQ(facts.needs.size(), 1u);
  EXPECT_EQ(facts.needs[0].nodes, 2);
  EXPECT_FALSE(facts.needs[0].partly);
  EXPECT_THAT(facts.needs[0].why, HasSubstr("job " + id.value + " lacks 2 nodes"));
}

TEST(PoolFactsTest, AWholeGangLacksNothingAndItsNodesAreBusy) {
  const RunningJob h(TrainYaml(), {}, {"n1", "n2", "n3"});
  const PoolFacts facts = Read(h);
  EXPECT_THAT(facts.needs, IsEmpty());
  EXPECT_TRUE(FactOf(facts, "n1").busy);
  EXPECT_FALSE(FactOf(facts, "n3").busy);
}

TEST(PoolFactsTest, NodesThatWaitWithWhatTheyHaveParkedAreNotLacked) {
  RunningJob h;
  h.Leave("n2");
  h.Advance(std::chrono::seconds(30));
  h.QuiesceAll(h.id);
  const PoolFacts facts = Read(h);
  EXPECT_EQ(FactOf(facts, "n2").state, PoolNodeState::kBad);
  ASSERT_EQ(facts.needs.size(), 1u);
  EXPECT_LE(facts.needs[0].nodes, 2);
  EXPECT_EQ(facts.needs[0].nodes, FactOf(facts, "n1").busy ? 1 : 2);
}

TEST(PoolFactsTest, NoPilotGetsANodeThatIsOutOfUseOrNotOfThePool) {
  ControlHarness h;
  h.Join("fixed");
  h.Join("n1", {.pilot = "p1"});
  h.Join("n2", {.pilot = "p2"});
  h.Join("n3", {.pilot = "p3"});
  h.Join("n4", {.pilot = "p4"});
  h.Deliver("n2", NodeNotice{.kind = NodeNoticeKind::kXid, .detail = "Xid 79", .fatal = true});
  EXPECT_THAT(Read(h).avoid, ElementsAre("fixed", "n2"));
  ASSERT_TRUE(h.Drain("n1").status.ok());
  h.Deliver("n3",
            NodeNotice{.kind = NodeNoticeKind::kDrain, .detail = "asked to end", .by_pilot = true});
  // Words decide of nothing.
  h.Deliver("n4",
            NodeNotice{.kind = NodeNoticeKind::kDrain, .detail = "its pilot job is not meant"});
  const PoolFacts facts = Read(h);
  EXPECT_THAT(facts.avoid, ElementsAre("fixed", "n1", "n2", "n4"));
  EXPECT_EQ(FactOf(facts, "n3").state, PoolNodeState::kLeaving);
  EXPECT_EQ(FactOf(facts, "n1").pilot, "p1");
}

TEST(PoolFactsTest, AJobThatIsHeldOrBeginsLaterLacksNothing) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml("held", "hold: true\nbegin: 2033-01-15T08:00:00Z\n"));
  EXPECT_THAT(Read(h).needs, IsEmpty());
  ASSERT_TRUE(h.ReleaseHeld(id).status.ok());
  EXPECT_THAT(Read(h).needs, IsEmpty());
  UpdateRequested at_once{.job = id.value};
  at_once.begin_unix_ms = 0;
  ASSERT_TRUE(h.Update(at_once).status.ok());
  EXPECT_EQ(Read(h).needs.size(), 1u);
}

TEST(PoolFactsTest, AJobThatIsSetAsideLacksNothing) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml());
  ASSERT_TRUE(h.Suspend(id).status.ok());
  EXPECT_THAT(Read(h).needs, IsEmpty());
}

std::string InQueue(const std::string& name, const std::string& queue, int nodes,
                    const std::string& more = "") {
  return "name: " + name + "\nresources: {nodes: " + std::to_string(nodes) +
         "}\nworkdir: /jobs\ncommand: [x]\nqueue: " + queue + "\n" + more;
}

int NodesLacked(const PoolFacts& facts) {
  int nodes = 0;
  for (const PoolNeed& need : facts.needs) nodes += need.nodes;
  return nodes;
}

TEST(PoolFactsTest, AJobAboveACeilingLacksNothing) {
  ControlHarness h;
  h.ApplyQueues(
      "queues:\n  default: {}\n  a:\n    ceiling: {slots: 3}\n"
      "    queues: {b: {ceiling: {slots: 2}}, c: {}}\n",
      0);
  h.Submit(InQueue("first", "b", 2));
  EXPECT_EQ(NodesLacked(Read(h)), 2);
  const JobId second = h.Submit(InQueue("second", "b", 1, "hold: true\n"));
  ASSERT_TRUE(h.ReleaseHeld(second).status.ok());
  EXPECT_EQ(NodesLacked(Read(h)), 2) << "what waits ahead of it has what its queue may have";
  ASSERT_TRUE(h.Hold(second).status.ok());
  for (const char* node : {"n1", "n2"}) h.Join(node);
  ASSERT_TRUE(h.ReleaseHeld(second).status.ok());
  EXPECT_EQ(NodesLacked(Read(h)), 0) << "and so has what runs";
  h.Submit(InQueue("third", "c", 2));
  EXPECT_EQ(NodesLacked(Read(h)), 0) << "the queue above has no room for so many";
  h.Submit(InQueue("fourth", "c", 1));
  EXPECT_EQ(NodesLacked(Read(h)), 1) << "but for one";
  UpdateRequested moves{.job = second.value};
  moves.queue = "default";
  ASSERT_TRUE(h.Update(moves).status.ok());
  EXPECT_EQ(NodesLacked(Read(h)), 2);
}

TEST(PoolFactsTest, AJobThatItsOwnerMayNotRunYetLacksNothing) {
  ControlHarness h;
  h.ApplyQueues("queues: {default: {}, a: {per_user: {running: 1}}, b: {per_user: {slots: 2}}}", 0);
  ASSERT_TRUE(
      h.ApplyUsers("users: {ada: {}, bob: {}}\nroles: [{role: submitter, users: [ada, bob]}]\n")
          .status.ok());
  h.SubmitAs("ada");
  for (const char* name : {"first", "second"}) h.Submit(InQueue(name, "a", 1));
  EXPECT_EQ(NodesLacked(Read(h)), 1);
  for (const char* name : {"third", "fourth", "fifth"}) h.Submit(InQueue(name, "b", 1));
  EXPECT_EQ(NodesLacked(Read(h)), 3);
  h.Join("n1");
  EXPECT_EQ(NodesLacked(Read(h)), 2) << "what runs counts";
  h.SubmitAs("bob");
  h.Submit(InQueue("his", "a", 1));
  EXPECT_EQ(NodesLacked(Read(h)), 3);
}

TEST(PoolFactsTest, ACeilingsRoomIsForTheJobThatGoesFirst) {
  ControlHarness h;
  h.ApplyQueues("classes: {urgent: 10}\nqueues: {default: {}, a: {ceiling: {slots: 2}}}\n", 0);
  h.Submit(InQueue("first", "a", 1));
  h.Submit(InQueue("favourite", "a", 1, "priority: 90\n"));
  const JobId urgent = h.Submit(InQueue("urgent", "a", 2, "class: urgent\npriority: 10\n"));
  const PoolFacts facts = Read(h);
  ASSERT_EQ(facts.needs.size(), 1u);
  EXPECT_THAT(facts.needs[0].why, HasSubstr(urgent.value));
}

TEST(PoolFactsTest, WhatGangsGiveWayForIsNotLacked) {
  for (const char* least : {"", ", min_nodes: 1"}) {
    ControlHarness h;
    for (const char* node : {"n1", "n2"}) h.Join(node);
    h.ApplyQueues("classes: {urgent: 10}\npreemption: {after: 1s}\nqueues: {default: {}}\n", 0);
    std::string yaml = TrainYaml("low");
    yaml.insert(yaml.find(", ranks_per_node"), least);
    const JobId low = h.Submit(yaml);
    h.RunTo(low, 12);
    h.Advance(std::chrono::seconds(2));
    const JobId high = h.Submit(InQueue("high", "default", 1, "class: urgent\n"));
    ASSERT_EQ(h.CountEvents(high, "reclaims"), 1) << h.Timeline();
    EXPECT_THAT(Read(h).needs, IsEmpty());
    h.Checkpoint(low, 13);
    h.Manifest(low, h.Directory(low, 13));
    for (int rank : {0, 1}) h.Exited(low, rank, {0, 0});
    h.QuiesceAll(low);
    h.StartAll(high);
    ASSERT_EQ(h.State(high), JobState::kRunning) << h.Timeline();
    h.Advance(std::chrono::seconds(5));
    const PoolFacts facts = Read(h);
    ASSERT_EQ(facts.needs.size(), 1u) << h.Timeline();
    EXPECT_THAT(facts.needs[0].why, HasSubstr(low.value));
  }
}

TEST(PoolFactsTest, AJobThatMayNotShrinkHasNoUseForAPart) {
  RunningJob h;
  h.Leave("n2");
  h.Advance(std::chrono::seconds(30));
  h.QuiesceAll(h.id);
  ASSERT_EQ(Read(h).needs.size(), 1u);
  EXPECT_FALSE(Read(h).needs[0].partly);
}

TEST(PoolFactsTest, JobsThatShareTheirSparesLackThemOnce) {
  ControlHarness h;
  for (const char* node : {"n1", "n2", "n3"}) h.Join(node);
  const auto submit = [&h](const char* name) {
    std::string yaml = TrainYaml(name);
    return h.Submit(
        yaml.replace(yaml.find("nodes: 2"), 8, "nodes: 2, spares: 2, share_spares: true"));
  };
  h.RunTo(submit("a"), 5);
  submit("b");
  const PoolFacts facts = Read(h);
  ASSERT_EQ(facts.needs.size(), 2u);
  EXPECT_EQ(facts.needs[0].nodes, 1) << "one spare is there";
  EXPECT_EQ(facts.needs[1].nodes, 2)
      << "its gang; the spare that comes for the other is its own too";
}

}  // namespace
}  // namespace muster
