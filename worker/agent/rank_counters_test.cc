#include "worker/agent/rank_counters.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

constexpr auto kAllReduce = static_cast<std::size_t>(CollectiveOp::kAllReduce);
constexpr ProcessKey kFirst{.pid = 10, .start_time = 100};
constexpr ProcessKey kSecond{.pid = 11, .start_time = 200};

class RankCountersTest : public testing::Test {
 protected:
  void Count(int rank, std::int64_t steps, std::uint64_t collectives = 0) {
    ProgressValues values;
    values.steps_done = steps;
    values.step_seconds_buckets[2] = static_cast<std::uint64_t>(steps);
    TrainingFigures figures;
    figures.flops_done = 1e9 * static_cast<double>(steps);
    figures.write.sum = 0.5 * static_cast<double>(steps);
    figures.first_collectives[kAllReduce] = collectives;
    counters_.Update(rank, values, figures);
  }
  std::int64_t Steps(int rank) const { return counters_.Total(rank).steps; }
  std::uint64_t Collectives(int rank) const {
    return counters_.Total(rank).collectives[kAllReduce];
  }

  RankCounters counters_;
};

TEST_F(RankCountersTest, AProcessThatReplacesAnotherAddsToWhatThatOneCounted) {
  counters_.Take(0, 1, kFirst);
  Count(0, 5);
  counters_.End(0);
  EXPECT_EQ(Steps(0), 5);
  counters_.Take(0, 2, kSecond);
  EXPECT_EQ(Steps(0), 5);
  Count(0, 2);
  const RankTotals total = counters_.Total(0);
  EXPECT_EQ(total.steps, 7);
  EXPECT_EQ(total.step_seconds_buckets[2], 7u);
  EXPECT_EQ(total.flops, 7e9);
  EXPECT_EQ(total.write.sum, 3.5);
}

TEST_F(RankCountersTest, AProcessThatGoesOnInANewGenerationIsNotCountedTwice) {
  counters_.Take(0, 1, kFirst);
  Count(0, 5);
  counters_.Take(0, 2, kFirst);
  EXPECT_EQ(Steps(0), 5);
  Count(0, 6);
  EXPECT_EQ(Steps(0), 6);
}

TEST_F(RankCountersTest, AProcessThatGetsAnotherRankBringsNothingAlong) {
  counters_.Take(0, 1, kFirst);
  counters_.Take(1, 1, kSecond);
  Count(0, 5);
  Count(1, 5);
  counters_.Take(0, 2, kSecond);
  Count(0, 8);
  EXPECT_EQ(Steps(0), 8) << "five of the first process and three of the second";
  EXPECT_EQ(Steps(1), 5);
}

TEST_F(RankCountersTest, ANumberThatIsGivenAgainIsAnotherProcess) {
  counters_.Take(0, 1, kFirst);
  Count(0, 5);
  counters_.Take(0, 2, {.pid = kFirst.pid, .start_time = 300});
  Count(0, 1);
  EXPECT_EQ(Steps(0), 6);
}

TEST_F(RankCountersTest, ARepeatedReportOfARankChangesNothing) {
  counters_.Take(0, 1, kFirst);
  Count(0, 5);
  counters_.Take(0, 1, kFirst);
  Count(0, 5);
  EXPECT_EQ(Steps(0), 5);
}

TEST_F(RankCountersTest, CollectivesGoOnOverProcesses) {
  counters_.Take(0, 1, kFirst);
  Count(0, 1, 40);
  counters_.End(0);
  counters_.Take(0, 2, kSecond);
  Count(0, 1, 6);
  EXPECT_EQ(Collectives(0), 46u);
}

TEST_F(RankCountersTest, ARankThatNeverWasHasCountedNothing) {
  EXPECT_EQ(Steps(3), 0);
  counters_.End(3);
  Count(3, 1);
  EXPECT_EQ(Steps(3), 0);
}

}  // namespace
}  // namespace muster::worker
