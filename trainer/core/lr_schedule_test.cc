#include "trainer/core/lr_schedule.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(LearningRate, WarmsUpFromAboveZeroToThePeak) {
  const ScheduleSpec schedule{.kind = "cosine", .warmup_ratio = 0.1};
  EXPECT_GT(LearningRate(schedule, 1.0, 0, 100), 0.0);
  for (Step s = 1; s <= 10; ++s) {
    EXPECT_GT(LearningRate(schedule, 1.0, s, 100), LearningRate(schedule, 1.0, s - 1, 100));
  }
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1.0, 10, 100), 1.0);
}

TEST(LearningRate, CosineFallsToNearlyZero) {
  const ScheduleSpec schedule{.kind = "cosine", .warmup_ratio = 0.1};
  EXPECT_NEAR(LearningRate(schedule, 2.0, 55, 100), 1.0, 1e-12);
  EXPECT_LT(LearningRate(schedule, 2.0, 99, 100), 0.001);
  EXPECT_GT(LearningRate(schedule, 2.0, 99, 100), 0.0);
  EXPECT_EQ(LearningRate(schedule, 2.0, 100, 100), 0.0);
}

TEST(LearningRate, ConstantStays) {
  const ScheduleSpec schedule{.kind = "constant", .warmup_ratio = 0.0};
  EXPECT_EQ(LearningRate(schedule, 3e-4, 0, 10), 3e-4);
  EXPECT_EQ(LearningRate(schedule, 3e-4, 9, 10), 3e-4);
}

}  // namespace
}  // namespace muster
