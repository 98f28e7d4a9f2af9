#include "worker/agent/guardian_gate.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using Verdict = GuardianGate::Verdict;

class GuardianGateTest : public testing::Test {
 protected:
  static Prepare OfRanks(int ranks) {
    Prepare prepare;
    for (int i = 0; i < ranks; ++i) prepare.ranks.push_back({8 + i, i});
    return prepare;
  }
  // How many of this many are not too many.
  int Admitted(const GuardianEvent& event, const Prepare& prepare, int count) {
    int admitted = 0;
    for (int i = 0; i < count; ++i)
      if (gate_.Admit(event, prepare, now_) != Verdict::kTooMany) ++admitted;
    return admitted;
  }

  GuardianGate gate_;
  TimePoint now_ = SystemClock().Now();
};

TEST_F(GuardianGateTest, TheReplayOfTheReportsOfAllRanksPasses) {
  constexpr int kReplay = 8 * (9 * 32 + 5 + 2) + 4;
  EXPECT_EQ(Admitted(GuardianReport{.rank = 8}, OfRanks(8), kReplay), kReplay);
}

TEST_F(GuardianGateTest, ReportsWithoutEndDoNotAndSomePassLater) {
  const GuardianEvent report = GuardianReport{.rank = 8};
  EXPECT_LT(Admitted(report, OfRanks(1), 100'000), 2000);
  EXPECT_EQ(Admitted(report, OfRanks(1), 1), 0);
  now_ += std::chrono::seconds(10);
  const int later = Admitted(report, OfRanks(1), 100'000);
  EXPECT_GE(later, 100);
  EXPECT_LT(later, 2000);
}

TEST_F(GuardianGateTest, AGuardianThatAnswersPingsMayDoSoForEver) {
  for (int i = 0; i < 100'000; ++i, now_ += std::chrono::milliseconds(100))
    ASSERT_EQ(gate_.Admit(GuardianAlive{}, Prepare{}, now_), Verdict::kTake);
}

TEST_F(GuardianGateTest, AGuardianThatClosesEachConnectionIsNotConnectedToWithoutPause) {
  int connections = 0;
  while (connections < 100'000 && gate_.AdmitConnection(now_)) ++connections;
  EXPECT_LT(connections, 2000);
  now_ += std::chrono::seconds(10);
  EXPECT_TRUE(gate_.AdmitConnection(now_));
}

TEST_F(GuardianGateTest, RanksThatTheJobDoesNotHaveHereAreIgnored) {
  const Prepare prepare = OfRanks(2);
  for (const int rank : {8, 9, kStoreRank}) {
    EXPECT_EQ(gate_.Admit(GuardianRankStarted{.rank = rank}, prepare, now_), Verdict::kTake);
    EXPECT_EQ(gate_.Admit(GuardianRankExited{.rank = rank}, prepare, now_), Verdict::kTake);
  }
  EXPECT_EQ(gate_.ignored(), 0u);
  for (const int rank : {0, 10, -2})
    EXPECT_EQ(gate_.Admit(GuardianRankStarted{.rank = rank}, prepare, now_), Verdict::kIgnore);
  EXPECT_EQ(gate_.Admit(GuardianReport{.rank = 7}, prepare, now_), Verdict::kIgnore);
  EXPECT_EQ(gate_.Admit(GuardianRankExited{.rank = 7}, prepare, now_), Verdict::kIgnore);
  EXPECT_EQ(gate_.Admit(GuardianSynced{}, prepare, now_), Verdict::kTake);
  EXPECT_EQ(gate_.ignored(), 5u);
}

TEST_F(GuardianGateTest, TheEndOfARankOfAnOlderGenerationPassesWithoutASuspicion) {
  Prepare prepare = OfRanks(2);
  prepare.generation = 2;
  EXPECT_EQ(gate_.Admit(GuardianRankExited{.generation = 1, .rank = 3}, prepare, now_),
            Verdict::kTake);
  EXPECT_EQ(gate_.Admit(GuardianRankStarted{.generation = 1, .rank = 3}, prepare, now_),
            Verdict::kIgnore)
      << "its page is of no use any more";
  EXPECT_EQ(gate_.ignored(), 0u);
}

}  // namespace
}  // namespace muster::worker
