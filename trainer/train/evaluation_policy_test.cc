#include "trainer/train/evaluation.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace muster {
namespace {

// The number of evaluations after which training ends; 0: it goes on.
int EndsAfter(const EarlyStopSpec& spec, const std::vector<double>& losses) {
  EvalHistory history;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    NoteEvaluation(spec, static_cast<Step>(10 * (i + 1)), losses[i], &history);
    if (EndsEarly(spec, history)) return static_cast<int>(i + 1);
  }
  return 0;
}

TEST(EvaluationPolicy, KeepsTheFirstOfTheLowestLosses) {
  EvalHistory history;
  EXPECT_TRUE(NoteEvaluation({}, 10, 3, &history));
  EXPECT_TRUE(NoteEvaluation({}, 20, 2, &history));
  EXPECT_FALSE(NoteEvaluation({}, 30, 2, &history));
  EXPECT_FALSE(NoteEvaluation({}, 40, 2.5, &history));
  EXPECT_EQ(history.step, 40);
  EXPECT_EQ(history.loss, 2.5);
  EXPECT_EQ(history.best_step, 20);
  EXPECT_EQ(history.best_loss, 2);
  EXPECT_EQ(history.without_better, 2);
}

TEST(EvaluationPolicy, ALossThatIsNotFiniteIsNeverBetter) {
  EvalHistory history;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(NoteEvaluation({}, 10, nan, &history));
  EXPECT_EQ(history.best_step, -1);
  EXPECT_EQ(history.without_better, 1);
  EXPECT_EQ(history, EvalHistory(history)) << "ranks compare it";
  EXPECT_TRUE(NoteEvaluation({}, 20, 5, &history));
  EXPECT_FALSE(NoteEvaluation({}, 30, -nan, &history));
  EXPECT_EQ(history.best_step, 20);
}

TEST(EvaluationPolicy, EndsAfterSoManyInARowWithoutABetter) {
  EXPECT_EQ(EndsAfter({.patience = 0}, {1, 2, 3, 4, 5}), 0);
  EXPECT_EQ(EndsAfter({.patience = 1}, {1, 2}), 2);
  EXPECT_EQ(EndsAfter({.patience = 2}, {3, 2, 2.5, 1.9, 2, 2}), 6);
  EXPECT_EQ(EndsAfter({.patience = 3}, {3, 2, 2.5, 1.9, 2, 2}), 0);
}

TEST(EvaluationPolicy, SmallGainsCountOnceTogetherTheyAreLarge) {
  EXPECT_EQ(EndsAfter({.patience = 2, .min_delta = 0.5}, {3, 2.9, 2.8}), 3);
  // The third is 0.6 below the first.
  EXPECT_EQ(EndsAfter({.patience = 3, .min_delta = 0.5}, {3, 2.7, 2.4, 2.3, 2.2, 2.1}), 6);
  EvalHistory history;
  NoteEvaluation({.min_delta = 0.5}, 10, 3, &history);
  EXPECT_TRUE(NoteEvaluation({.min_delta = 0.5}, 20, 2.9, &history)) << "the best all the same";
}

}  // namespace
}  // namespace muster
