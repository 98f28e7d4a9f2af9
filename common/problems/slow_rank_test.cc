#include "common/problems/slow_rank.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using Work = SlowRankWatch::Work;

// What four ranks have done after `steps`, of which rank 2 takes `slow` seconds and the others one.
std::vector<Work> After(std::int64_t steps, double slow) {
  std::vector<Work> ranks(4, Work{static_cast<double>(steps), steps});
  ranks[2].busy_seconds = slow * static_cast<double>(steps);
  return ranks;
}

TEST(SlowRankWatch, NamesTheRankAfterAWindow) {
  SlowRankWatch watch;
  watch.Observe(1, After(1, 1.5));
  watch.Observe(1, After(20, 1.5));
  EXPECT_EQ(watch.slowest(), nullptr);
  watch.Observe(1, After(21, 1.5));
  ASSERT_NE(watch.slowest(), nullptr);
  EXPECT_EQ(watch.slowest()->rank, 2);
  EXPECT_DOUBLE_EQ(watch.slowest()->seconds, 1.5);
  EXPECT_DOUBLE_EQ(watch.slowest()->others_seconds, 1);
}

TEST(SlowRankWatch, SaysThatItIsOver) {
  SlowRankWatch watch;
  watch.Observe(1, After(1, 1.5));
  watch.Observe(1, After(21, 1.5));
  ASSERT_NE(watch.slowest(), nullptr);
  std::vector<Work> later = After(21, 1.5);
  for (Work& work : later) work = {work.busy_seconds + 30, work.steps + 30};
  watch.Observe(1, later);
  EXPECT_EQ(watch.slowest(), nullptr);
}

TEST(SlowRankWatch, TheFirstStepIsUnlikeTheOthers) {
  SlowRankWatch watch;
  watch.Observe(1, After(0, 1));
  std::vector<Work> begun = After(1, 1);
  begun[0].busy_seconds = 100;
  watch.Observe(1, begun);
  std::vector<Work> later = After(21, 1);
  later[0].busy_seconds = 120;
  watch.Observe(1, later);
  EXPECT_EQ(watch.slowest(), nullptr);
}

TEST(SlowRankWatch, LittleIsNoise) {
  SlowRankWatch watch;
  watch.Observe(1, After(1, 1.05));
  watch.Observe(1, After(41, 1.05));
  EXPECT_EQ(watch.slowest(), nullptr);
}

// Twenty steps of a millisecond tell nothing.
TEST(SlowRankWatch, FastStepsAreWatchedForLonger) {
  SlowRankWatch watch;
  const auto fast = [](std::int64_t steps) {
    std::vector<Work> ranks = After(steps, 2);
    for (Work& work : ranks) work.busy_seconds /= 1000;
    return ranks;
  };
  watch.Observe(1, fast(1));
  watch.Observe(1, fast(4000));
  EXPECT_EQ(watch.slowest(), nullptr);
  watch.Observe(1, fast(6001));
  EXPECT_NE(watch.slowest(), nullptr);
}

TEST(SlowRankWatch, ANewGangBeginsAnew) {
  SlowRankWatch watch;
  watch.Observe(1, After(1, 2));
  watch.Observe(1, After(21, 2));
  ASSERT_NE(watch.slowest(), nullptr);
  watch.Observe(2, After(25, 2));
  EXPECT_EQ(watch.slowest(), nullptr);
  watch.Observe(2, After(5, 2));  // its processes began again
  watch.Observe(2, After(24, 2));
  EXPECT_EQ(watch.slowest(), nullptr);
}

TEST(SlowRankWatch, OfTwoTheSlowOneIsNamed) {
  SlowRankWatch watch;
  watch.Observe(1, {{1, 1}, {2, 1}});
  watch.Observe(1, {{21, 21}, {42, 21}});
  ASSERT_NE(watch.slowest(), nullptr);
  EXPECT_EQ(watch.slowest()->rank, 1);
}

TEST(SlowRankWatch, AloneNobodyIsSlow) {
  SlowRankWatch watch;
  watch.Observe(1, {{1, 1}});
  watch.Observe(1, {{91, 91}});
  EXPECT_EQ(watch.slowest(), nullptr);
}

}  // namespace
}  // namespace muster
