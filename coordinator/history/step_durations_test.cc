#include "coordinator/history/step_durations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace muster {
namespace {

double Percentile(std::vector<double> values, double quantile) {
  std::sort(values.begin(), values.end());
  const auto rank =
      static_cast<std::size_t>(std::ceil(quantile * static_cast<double>(values.size())));
  return values[std::max<std::size_t>(1, rank) - 1];
}

TEST(StepDurations, OfAllStepsPercentilesAreWithinABucket) {
  StepDurations times;
  std::vector<double> all;
  std::mt19937 random(3);
  std::lognormal_distribution<double> seconds(-1, 1);
  for (int i = 0; i < 20000; ++i) {
    all.push_back(seconds(random));
    times.Add(all.back());
  }
  const StepPercentiles of_all = times.All();
  EXPECT_EQ(of_all.steps, 20000u);
  EXPECT_NEAR(of_all.p50 / Percentile(all, 0.5), 1, 0.05);
  EXPECT_NEAR(of_all.p95 / Percentile(all, 0.95), 1, 0.05);
  EXPECT_NEAR(of_all.p99 / Percentile(all, 0.99), 1, 0.05);
  const StepPercentiles recent = times.Recent();
  const std::vector<double> newest(all.end() - StepDurations::kRecent, all.end());
  EXPECT_EQ(recent.steps, StepDurations::kRecent);
  EXPECT_FLOAT_EQ(static_cast<float>(recent.p50), static_cast<float>(Percentile(newest, 0.5)));
  EXPECT_FLOAT_EQ(static_cast<float>(recent.p99), static_cast<float>(Percentile(newest, 0.99)));
}

TEST(StepDurations, StepsBetweenTwoLooksCountToo) {
  StepDurations times;
  times.Add(1.0, 9);
  times.Add(3.0);
  EXPECT_EQ(times.All().steps, 10u);
  EXPECT_EQ(times.Recent().p50, 1.0);
  EXPECT_EQ(times.Recent().p99, 3.0);
}

TEST(StepDurations, WhatIsNoTimeIsIgnoredAndExtremesStayInside) {
  StepDurations times;
  EXPECT_EQ(times.All().steps, 0u);
  EXPECT_EQ(times.Recent().steps, 0u);
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()})
    times.Add(bad);
  EXPECT_EQ(times.All().steps, 0u);
  times.Add(1e-9);
  EXPECT_LE(times.All().p50, StepDurations::kLeastSeconds);
  times.Add(1e9, 1000);
  EXPECT_GT(times.All().p50, 3 * 3600);
}

}  // namespace
}  // namespace muster
