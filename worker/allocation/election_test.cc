#include "worker/allocation/election.h"

#include <gtest/gtest.h>

#include <random>

#include "worker/allocation/testing/election_harness.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Election, TheFirstNodeLeadsAndTheOthersFollow) {
  ElectionHarness gang(4);
  EXPECT_TRUE(gang.RunUntil([&] { return gang.Leader() == 0; }, milliseconds(300)));
  EXPECT_EQ(gang.epoch(), 1u);
  gang.Run(seconds(30));
  EXPECT_EQ(gang.epoch(), 1u);
  EXPECT_TRUE(gang.of(0).leading());
  for (int node = 1; node < 4; ++node) {
    EXPECT_FALSE(gang.of(node).leading());
    EXPECT_TRUE(gang.of(node).Alive(0, gang.now()));
    EXPECT_TRUE(gang.of(0).Alive(node, gang.now()));
  }
}

TEST(Election, AnAllocationOfOneNodeLeadsItself) {
  ElectionHarness gang(1);
  EXPECT_TRUE(gang.RunUntil([&] { return gang.Leader() == 0; }, milliseconds(300)));
}

TEST(Election, TheNextOneTakesOverFromAKilledLeaderWithinASecond) {
  ElectionHarness gang(3);
  gang.Run(seconds(1));
  gang.Kill(0);
  EXPECT_TRUE(gang.RunUntil([&] { return gang.Leader() == 1; }, milliseconds(1600)));
  gang.Run(seconds(30));
  EXPECT_EQ(gang.epoch(), 2u);
}

TEST(Election, AFirstOneThatIsBackFollowsWhoLeadsByNow) {
  const TimePoint now = SystemClock().Now();
  Election back({.index = 0, .node_count = 3, .first_leads = false}, now);
  const Leadership of_next{.epoch = 2,
                           .leader = {.index = 1, .node = "n1", .address = "127.0.0.1:2"},
                           .grpc = "127.0.0.1:3",
                           .http = ""};
  back.OnShared(std::nullopt, of_next, 1, now);
  back.Tick(now);
  for (const ElectionEffect& effect : back.TakeEffects())
    EXPECT_FALSE(std::holds_alternative<StartCoordinator>(effect));
  EXPECT_EQ(back.leadership(), of_next);
  EXPECT_FALSE(back.leading());
}

TEST(Election, ALostMachineIsReplacedWithinFiveSeconds) {
  ElectionHarness gang(3);
  gang.Run(seconds(1));
  gang.PowerOff(0);
  EXPECT_TRUE(gang.RunUntil([&] { return gang.Leader() == 1; }, seconds(5)));
}

TEST(Election, TwoOfTwoNodesReplaceEachOther) {
  ElectionHarness gang(2);
  gang.Run(seconds(1));
  gang.PowerOff(0);
  EXPECT_TRUE(gang.RunUntil([&] { return gang.Leader() == 1; }, seconds(5)));
}

TEST(Election, DeadOnesBelowAreSkipped) {
  ElectionHarness gang(6);
  gang.Run(seconds(1));
  gang.PowerOff(1);
  gang.Kill(2);
  gang.Kill(0);
  EXPECT_TRUE(gang.RunUntil([&] { return gang.Leader() == 3; }, seconds(5)));
}

TEST(Election, ALeaderWhoseCoordinatorDiesStartsAnother) {
  ElectionHarness gang(3);
  gang.Run(seconds(1));
  gang.KillCoordinator(0);
  EXPECT_TRUE(gang.RunUntil([&] { return gang.Leader() == 0 && gang.epoch() == 2; }, seconds(3)));
}

TEST(Election, ANodeThatCannotRunACoordinatorLeavesItToTheNext) {
  ElectionHarness gang(3);
  gang.ForbidCoordinators(0);
  EXPECT_TRUE(gang.RunUntil([&] { return gang.Leader() == 1; }, seconds(30)));
  EXPECT_TRUE(gang.of(0).unfit());
}

TEST(Election, ALeaderThatCannotRunACoordinatorAnyMoreLeavesItToTheNext) {
  ElectionHarness gang(3);
  gang.Run(seconds(1));
  gang.ForbidCoordinators(0);
  gang.KillCoordinator(0);
  EXPECT_TRUE(gang.RunUntil([&] { return gang.Leader() == 1; }, seconds(10)));
  EXPECT_EQ(gang.epoch(), 2u);
}

TEST(Election, WhenTheFirstNodeNeverComesTheSecondLeads) {
  ElectionHarness gang(3);
  gang.PowerOff(0);
  EXPECT_TRUE(gang.RunUntil([&] { return gang.Leader() == 1; }, seconds(30)));
}

TEST(Election, WhenNoNodeCanLeadExactlyOneGivesUp) {
  ElectionHarness gang(3);
  for (int node = 0; node < 3; ++node) gang.ForbidCoordinators(node);
  gang.Run(seconds(300));
  EXPECT_EQ(gang.give_ups(), 1);
}

TEST(Election, WhenNoNodeCanLeadAnyMoreExactlyOneGivesUp) {
  ElectionHarness gang(3);
  gang.Run(seconds(1));
  for (int node = 0; node < 3; ++node) gang.ForbidCoordinators(node);
  gang.KillCoordinator(0);
  EXPECT_TRUE(gang.RunUntil([&] { return gang.GaveUp(0); }, seconds(150)));
  gang.Run(seconds(60));
  EXPECT_EQ(gang.give_ups(), 1);
}

// The one cut off would otherwise fence the coordinator that all the others use.
TEST(Election, ANodeCutOffDoesNotTakeOverAtOnceAndNotForEver) {
  ElectionHarness gang(4);
  gang.Run(seconds(1));
  gang.CutOff(2);
  gang.Run(seconds(9));
  EXPECT_EQ(gang.epoch(), 1u);
  gang.HealAll();
  EXPECT_TRUE(gang.RunUntil([&] { return gang.Leader() >= 0; }, seconds(5)));
  EXPECT_EQ(gang.Leader(), 0);
}

// A node is cut off and comes back; for `late` its connection to the leader repeats what the cut
// link swallowed, while the third node answers.
void ExpectToDeposeNoLeader(milliseconds cut, milliseconds late) {
  ElectionHarness gang(3);
  gang.Run(seconds(1));
  gang.CutOff(1);
  gang.Run(cut);
  gang.HealAll();
  gang.Cut(0, 1);
  gang.Run(late);
  gang.HealAll();
  gang.Run(seconds(10));
  EXPECT_EQ(gang.epoch(), 1u) << "cut off for " << cut.count() << " ms";
  EXPECT_EQ(gang.Leader(), 0);
}

// Whenever its link heals, and whichever node it reaches first.
TEST(Election, ANodeThatWasCutOffDeposesNoLeaderOnceItIsBack) {
  for (auto cut = milliseconds(2000); cut < milliseconds(9000); cut += milliseconds(50))
    ExpectToDeposeNoLeader(cut, milliseconds(0));
}

TEST(Election, ANodeThatIsBackDeposesNoLeaderThatAnotherOneReaches) {
  for (auto cut = milliseconds(2000); cut < milliseconds(9000); cut += milliseconds(250))
    ExpectToDeposeNoLeader(cut, seconds(3));
}

TEST(Election, ADeposedNodeThatStaysCutOffTakesOverEverMoreSeldom) {
  ElectionHarness gang(4);
  gang.Run(seconds(1));
  gang.CutOff(0);
  gang.Run(seconds(120));
  EXPECT_LE(gang.epoch(), 12u);
  gang.HealAll();
  EXPECT_TRUE(gang.RunUntil([&] { return gang.Leader() >= 0; }, seconds(10)));
}

TEST(Election, OneLostLinkToTheLeaderDoesNotDeposeIt) {
  for (const int node : {1, 2}) {
    ElectionHarness gang(3);
    gang.Run(seconds(1));
    gang.Cut(0, node);
    gang.Run(seconds(60));
    EXPECT_EQ(gang.epoch(), 1u) << node;
  }
}

TEST(Election, AnAnswerOfAnOlderEpochChangesNothing) {
  ElectionHarness gang(3);
  gang.Run(seconds(1));
  gang.Kill(0);
  gang.Run(seconds(5));
  Election late = gang.of(2);
  PeerView old;
  old.self = ElectionHarness::MemberOf(0);
  old.leadership = {1, old.self, "grpc", "http"};
  late.OnAnswer(old, gang.now());
  EXPECT_EQ(late.leadership().leader.index, 1);
  EXPECT_EQ(late.leadership().epoch, 2u);
}

TEST(Election, QuestionsKeepNodesAliveInAllocationsOfAnySize) {
  for (const int nodes : {1, 3, 512, 1024, 4096}) {
    const ElectionOptions options{.node_count = nodes};
    EXPECT_GE(options.AskInterval(), options.ask_interval) << nodes;
    EXPECT_EQ(options.AliveFor(), options.AskInterval() + options.silence) << nodes;
    // Not more than a thousand questions a second to one leader.
    EXPECT_GE(options.AskInterval() * 1000, seconds(nodes)) << nodes;
  }
  ElectionOptions many;
  many.node_count = 4096;
  many.index = 5;
  Election follower(many, TimePoint(seconds(1)));
  PeerView leader;
  leader.self = ElectionHarness::MemberOf(0);
  leader.leadership = {1, leader.self, "grpc", "http"};
  TimePoint now(seconds(1));
  follower.OnAnswer(leader, now);
  bool asked = false;
  for (int i = 0; i < 300 && !asked; ++i, now += milliseconds(20)) {
    follower.Tick(now);
    for (const ElectionEffect& effect : follower.TakeEffects())
      asked = asked || std::holds_alternative<AskPeer>(effect);
    EXPECT_TRUE(follower.Alive(0, now)) << "before it was even asked";
  }
  EXPECT_TRUE(asked);
}

// Its own network is lost, the shared directory is not: the others go on, and it must neither fence
// their coordinator nor have their allocation requeued.
TEST(Election, ANodeThatLostOnlyItsDataNetworkWaitsForAsLongAsTheRecordIsRenewed) {
  for (const int nodes : {2, 3}) {
    ElectionHarness gang(nodes);
    gang.Run(seconds(1));
    gang.CutOff(nodes - 1);
    gang.ForbidCoordinators(nodes - 1);
    gang.Run(seconds(600));
    EXPECT_EQ(gang.epoch(), 1u) << nodes;
    EXPECT_EQ(gang.give_ups(), 0) << nodes;
  }
}

TEST(Election, AnIsolatedNodeGivesUpWhenNoRecordIsRenewedEither) {
  ElectionHarness gang(3);
  gang.Run(seconds(1));
  gang.ForbidCoordinators(2);
  gang.CutOff(2);
  gang.PowerOff(0);
  gang.PowerOff(1);
  gang.Run(seconds(300));
  EXPECT_TRUE(gang.GaveUp(2));
}

TEST(Election, AllRecordsAreReadNowAndThenNotAtEveryTick) {
  ElectionHarness gang(4);
  gang.Run(seconds(1));
  Election electing = gang.of(3);
  TimePoint now = gang.now();
  for (int i = 0; i < 10; ++i) electing.OnSilence(0, true, now += milliseconds(100));
  electing.TakeEffects();
  const std::vector<Member> members = {ElectionHarness::MemberOf(1), ElectionHarness::MemberOf(2)};
  int all = 0, leader = 0;
  for (const TimePoint end = now + seconds(4); now < end; now += milliseconds(20)) {
    electing.Tick(now);
    for (const ElectionEffect& effect : electing.TakeEffects()) {
      const auto* read = std::get_if<ReadShared>(&effect);
      if (read == nullptr) continue;
      ++(read->members ? all : leader);
      electing.OnShared(members, std::nullopt, 0, now);
    }
  }
  EXPECT_GE(all, 1);
  EXPECT_LE(all, 3);
  EXPECT_GE(leader, 8);
  EXPECT_LE(leader, 22);
}

// Kills, cut links and failing starts at random; then quiet. The remaining nodes agree on one
// leader.
TEST(Election, AfterAnyTroubleThoseLeftAgree) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const int nodes = 2 + draw(7);
    ElectionHarness gang(nodes);
    int alive = nodes;
    for (int trouble = 0; trouble < 12; ++trouble) {
      gang.Run(milliseconds(20 * draw(300)));
      const int node = draw(nodes);
      switch (draw(5)) {
        case 0:
        case 1:
          if (alive > 1 && gang.alive(node)) {
            --alive;
            if (draw(2) == 0)
              gang.Kill(node);
            else
              gang.PowerOff(node);
          }
          break;
        case 2: gang.Cut(node, (node + 1 + draw(nodes - 1)) % nodes); break;
        case 3: gang.CutOff(node); break;
        case 4: gang.HealAll(); break;
      }
    }
    gang.HealAll();
    // What was under way while links were cut still has its effects.
    gang.Run(seconds(30));
    EXPECT_TRUE(gang.RunUntil([&] { return gang.Leader() >= 0; }, seconds(60))) << "seed " << seed;
    const std::uint64_t epoch = gang.epoch();
    gang.Run(seconds(30));
    EXPECT_EQ(gang.epoch(), epoch) << "not stable, seed " << seed;
    EXPECT_EQ(gang.RunningCoordinators(), 1) << "seed " << seed;
  }
}

}  // namespace
}  // namespace muster::worker
