#include "cli/top/series.h"

#include <gtest/gtest.h>

#include <cmath>

namespace muster {
namespace {

TEST(Series, KeepsWhatItWasGiven) {
  Series series;
  series.Add(1, 5);
  series.Add(2, 4);
  series.Add(4, 3);
  EXPECT_EQ(series.values(), (std::vector<double>{5, 4, 3}));
  EXPECT_EQ(series.last(), 3);
}

TEST(Series, AStepDoneAgainReplacesWhatFollowedIt) {
  Series series;
  for (int step = 1; step <= 5; ++step) series.Add(step, step);
  series.Add(3, 30);
  EXPECT_EQ(series.values(), (std::vector<double>{1, 2, 30}));
}

TEST(Series, StaysBoundedAndKeepsTheWholeRunInView) {
  Series series;
  for (int step = 1; step <= 1'000'000; ++step) series.Add(step, step);
  const std::vector<double> values = series.values();
  EXPECT_LE(values.size(), Series::kBound);
  EXPECT_GE(values.size(), Series::kBound / 4);
  EXPECT_EQ(values.front(), 1);
  EXPECT_EQ(values.back(), 1'000'000);
  double widest = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    ASSERT_LT(values[i - 1], values[i]);
    widest = std::max(widest, values[i] - values[i - 1]);
  }
  EXPECT_LE(widest, 1'000'000.0 / 100);
}

TEST(Series, TheMedianLeavesOutWhatIsNoNumber) {
  Series series;
  EXPECT_EQ(series.Median(), 0);
  for (const double value : {3.0, 1.0, std::nan(""), 2.0}) {
    static int step = 0;
    series.Add(++step, value);
  }
  EXPECT_EQ(series.Median(), 2);
}

}  // namespace
}  // namespace muster
