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

// Three windows, which end at steps 21, 41 and 61.
void ObserveThree(SlowRankWatch* watch, double slow) {
  for (const std::int64_t steps : {1, 21, 41, 61}) watch->Observe(1, After(steps, slow));
}

TEST(SlowRankWatch, NamesTheRankThatIsSlowInThreeWindows) {
  SlowRankWatch watch;
  for (const std::int64_t steps : {1, 21, 41, 60}) watch.Observe(1, After(steps, 1.5));
  EXPECT_EQ(watch.slowest(), nullptr);
  watch.Observe(1, After(61, 1.5));
  ASSERT_NE(watch.slowest(), nullptr);
  EXPECT_EQ(watch.slowest()->rank, 2);
  EXPECT_DOUBLE_EQ(watch.slowest()->seconds, 1.5);
  EXPECT_DOUBLE_EQ(watch.slowest()->others_seconds, 1);
}

// As on a machine that others use too.
TEST(SlowRankWatch, AnotherSlowRankInEachWindowIsNobody) {
  SlowRankWatch watch;
  std::vector<Work> ranks(4, Work{1, 1});
  for (int window = 0; window < 12; ++window) {
    watch.Observe(1, ranks);
    EXPECT_EQ(watch.slowest(), nullptr) << window;
    for (Work& work : ranks) work = {work.busy_seconds + 20, work.steps + 20};
    ranks[static_cast<std::size_t>(window % 4)].busy_seconds += 20;
  }
}

TEST(SlowRankWatch, SaysThatItIsOver) {
  SlowRankWatch watch;
  ObserveThree(&watch, 1.5);
  ASSERT_NE(watch.slowest(), nullptr);
  std::vector<Work> later = After(61, 1.5);
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
  for (const std::int64_t steps : {21, 41, 61}) {
    std::vector<Work> later = After(steps, 1);
    later[0].busy_seconds += 99;
    watch.Observe(1, later);
  }
  EXPECT_EQ(watch.slowest(), nullptr);
}

TEST(SlowRankWatch, LittleIsNoise) {
  SlowRankWatch watch;
  ObserveThree(&watch, 1.05);
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
  // Half of these are the end of a window.
  for (const std::int64_t steps : {1, 4000, 8000, 12000, 16000, 20000})
    watch.Observe(1, fast(steps));
  EXPECT_EQ(watch.slowest(), nullptr);
  watch.Observe(1, fast(24000));
  EXPECT_NE(watch.slowest(), nullptr);
}

TEST(SlowRankWatch, ANewGangBeginsAnew) {
  SlowRankWatch watch;
  ObserveThree(&watch, 2);
  ASSERT_NE(watch.slowest(), nullptr);
  watch.Observe(2, After(65, 2));
  EXPECT_EQ(watch.slowest(), nullptr);
  watch.Observe(2, After(5, 2));  // its processes began again
  watch.Observe(2, After(24, 2));
  EXPECT_EQ(watch.slowest(), nullptr);
}

TEST(SlowRankWatch, OfTwoTheSlowOneIsNamed) {
  SlowRankWatch watch;
  for (const int steps : {1, 21, 41, 61})
    watch.Observe(1, {{1.0 * steps, steps}, {2.0 * steps, steps}});
  ASSERT_NE(watch.slowest(), nullptr);
  EXPECT_EQ(watch.slowest()->rank, 1);
}

TEST(SlowRankWatch, AloneNobodyIsSlow) {
  SlowRankWatch watch;
  for (const int steps : {1, 31, 61, 91}) watch.Observe(1, {{1.0 * steps, steps}});
  EXPECT_EQ(watch.slowest(), nullptr);
}

}  // namespace
}  // namespace muster
