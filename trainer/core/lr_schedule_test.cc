#include "trainer/core/lr_schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace muster {
namespace {

std::vector<double> Rates(const ScheduleSpec& schedule, Step max_steps) {
  std::vector<double> rates;
  for (Step s = 0; s <= max_steps; ++s) {
    rates.push_back(LearningRate(schedule, 3e-4, s, max_steps));
  }
  return rates;
}

void ExpectRates(const ScheduleSpec& schedule, const std::vector<double>& expected) {
  const std::vector<double> rates = Rates(schedule, static_cast<Step>(expected.size()) - 1);
  for (std::size_t s = 0; s < expected.size(); ++s) {
    EXPECT_DOUBLE_EQ(rates[s], expected[s]) << schedule.kind << ", step " << s;
  }
}

// What transformers 5.23 gives for SGD(lr=3e-4) with get_*_schedule_with_warmup(optimizer, 3, 10).
TEST(LearningRate, EqualsTheSchedulesOfTransformers) {
  ExpectRates({.kind = "constant", .warmup_steps = 3},
              {0.0, 9.999999999999999e-05, 0.00019999999999999998, 0.0003, 0.0003, 0.0003, 0.0003,
               0.0003, 0.0003, 0.0003, 0.0003});
  ExpectRates({.kind = "linear", .warmup_steps = 3},
              {0.0, 9.999999999999999e-05, 0.00019999999999999998, 0.0003, 0.0002571428571428571,
               0.00021428571428571427, 0.0001714285714285714, 0.00012857142857142855,
               8.57142857142857e-05, 4.285714285714285e-05, 0.0});
  ExpectRates({.kind = "cosine", .warmup_steps = 3},
              {0.0, 9.999999999999999e-05, 0.00019999999999999998, 0.0003, 0.0002851453301853628,
               0.00024352347027881003, 0.00018337814009344714, 0.00011662185990655284,
               5.6476529721189974e-05, 1.4854669814637143e-05, 0.0});
}

TEST(LearningRate, WithoutWarmUpTheFirstStepHasThePeak) {
  ExpectRates({.kind = "cosine", .warmup_ratio = 0},
              {0.0003, 0.0002851453301853628, 0.00024352347027881003, 0.00018337814009344714,
               0.00011662185990655284, 5.6476529721189974e-05, 1.4854669814637143e-05, 0.0});
  EXPECT_EQ(LearningRate({.kind = "constant", .warmup_ratio = 0}, 3e-4, 0, 10), 3e-4);
}

TEST(LearningRate, AWarmUpMayTakeTheWholeTraining) {
  ExpectRates({.kind = "linear", .warmup_steps = 4}, {0.0, 7.5e-05, 0.00015, 0.000225, 0.0});
}

TEST(LearningRate, ARatioIsRoundedUpToSteps) {
  EXPECT_EQ(WarmupSteps({.warmup_ratio = 0.03}, 101), 4);
  EXPECT_EQ(WarmupSteps({.warmup_ratio = 0.03}, 1), 1);
  EXPECT_EQ(WarmupSteps({.warmup_ratio = 0}, 1000), 0);
  EXPECT_EQ(WarmupSteps({.warmup_ratio = 0.03, .warmup_steps = 7}, 101), 7);
}

TEST(LearningRate, StaysAtZeroBeyondTheEnd) {
  for (const char* kind : {"linear", "cosine"}) {
    EXPECT_EQ(LearningRate({.kind = kind, .warmup_ratio = 0}, 1.0, 12, 10), 0.0) << kind;
  }
}

}  // namespace
}  // namespace muster
