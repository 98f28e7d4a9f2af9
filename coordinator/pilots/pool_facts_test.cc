#include "coordinator/pilots/pool_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

PoolFacts Read(const ControlHarness& h) { return PoolFactsReader().Read(h.controller()); }

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

}  // namespace
}  // namespace muster
