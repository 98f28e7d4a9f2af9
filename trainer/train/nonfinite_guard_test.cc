#include "trainer/train/nonfinite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

NonFiniteStep GradientStep(Step number) {
  return {.number = number,
          .loss = 2.5,
          .grad_norm = kNan,
          .where = "rank 1: gradient of model.norm.weight"};
}

TEST(NonFiniteGuard, StopEndsTheJobWithStepRankAndTensor) {
  NonFiniteGuard guard(NonFinitePolicy::kStop);
  const auto verdict = guard.Judge(GradientStep(7));
  EXPECT_TRUE(verdict.ends_job);
  EXPECT_THAT(verdict.message, HasSubstr("step 7: loss is 2.5"));
  EXPECT_THAT(verdict.message, HasSubstr("not finite is rank 1: gradient of model.norm.weight"));
  EXPECT_THAT(verdict.message, HasSubstr("train.optimizer.lr"));
}

TEST(NonFiniteGuard, ANanIsPrintedWithoutItsSign) {
  NonFiniteStep step = GradientStep(7);
  step.loss = -kNan;
  step.grad_norm = -kNan;
  EXPECT_THAT(NonFiniteGuard(NonFinitePolicy::kStop).Judge(step).message,
              HasSubstr("loss is nan and gradient norm is nan"));
}

TEST(NonFiniteGuard, SkipGoesOnUntilTheThirdStepInARow) {
  NonFiniteGuard guard(NonFinitePolicy::kSkip);
  EXPECT_FALSE(guard.Judge(GradientStep(4)).ends_job);
  const auto second = guard.Judge(GradientStep(5));
  EXPECT_FALSE(second.ends_job);
  EXPECT_THAT(second.message, HasSubstr("the step is skipped"));
  const auto third = guard.Judge(GradientStep(6));
  EXPECT_TRUE(third.ends_job);
  EXPECT_THAT(third.message, HasSubstr("third such step in a row"));
}

TEST(NonFiniteGuard, AFiniteStepBetweenStartsTheCountAgain) {
  NonFiniteGuard guard(NonFinitePolicy::kSkip);
  for (Step step = 1; step < 20; step += 3) {
    EXPECT_FALSE(guard.Judge(GradientStep(step)).ends_job);
    EXPECT_FALSE(guard.Judge(GradientStep(step + 1)).ends_job);
    guard.CountFinite();
  }
}

TEST(NonFiniteGuard, AWeightThatIsNotFiniteEndsTheJobAtOnce) {
  NonFiniteGuard guard(NonFinitePolicy::kSkip);
  NonFiniteStep step = GradientStep(9);
  step.where = "rank 0: weight of model.norm.weight";
  const auto verdict = guard.Judge(step);
  EXPECT_TRUE(verdict.ends_job);
  EXPECT_THAT(verdict.message, HasSubstr("an update has made it so"));
}

TEST(NonFiniteGuard, AModelThatHoldsANanIsNotAMatterOfTheLearningRate) {
  NonFiniteGuard guard(NonFinitePolicy::kStop);
  NonFiniteStep step = GradientStep(1);
  step.where = "rank 0: weight of model.norm.weight";
  step.untouched_source = "models/base";
  const std::string message = guard.Judge(step).message;
  EXPECT_THAT(message, HasSubstr("it is so in models/base"));
  EXPECT_THAT(message, Not(HasSubstr("train.optimizer.lr")));
}

TEST(NonFiniteGuard, TheFirstStepOfAModelIsNotAMatterOfTheLearningRate) {
  NonFiniteGuard guard(NonFinitePolicy::kStop);
  NonFiniteStep step = GradientStep(1);
  step.untouched_source = "models/base";
  const std::string message = guard.Judge(step).message;
  EXPECT_THAT(message, HasSubstr("no update has been made yet"));
  EXPECT_THAT(message, Not(HasSubstr("train.optimizer.lr")));
}

TEST(NonFiniteGuard, ALossThatOverflowsByItselfIsSaid) {
  NonFiniteGuard guard(NonFinitePolicy::kStop);
  EXPECT_THAT(guard.Judge({.number = 3, .loss = kNan, .grad_norm = 1}).message,
              HasSubstr("every weight and gradient is finite by itself"));
}

}  // namespace
}  // namespace muster
