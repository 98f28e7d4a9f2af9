#include "coordinator/history/step_curves.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

namespace muster {
namespace {

constexpr std::size_t kLoss = static_cast<std::size_t>(Curve::kLoss);

StepSample Sample(Step step, double loss, Generation generation = 1) {
  return {step, generation, {loss, 0.1, 1e9, 100}};
}

// Every sample that counts, kept whole.
struct Naive {
  std::map<Step, double> losses;
  Generation generation = 0;

  void Add(const StepSample& sample) {
    if (sample.generation > generation) losses.erase(losses.lower_bound(sample.step), losses.end());
    generation = sample.generation;
    if (losses.empty() || losses.rbegin()->first < sample.step)
      losses[sample.step] = sample.values[kLoss];
  }
};

TEST(StepCurves, KeepsEveryStepWhileTheyAreFew) {
  StepCurves curves;
  for (Step step = 1; step <= 300; ++step) curves.Add(Sample(step, 10.0 / step));
  ASSERT_EQ(curves.cells().size(), 300u);
  EXPECT_EQ(curves.stride(), 1);
  EXPECT_EQ(curves.cells()[9].first, 10);
  EXPECT_EQ(curves.cells()[9].ranges[kLoss].last, 1.0);
}

TEST(StepCurves, LosesNoPeakHoweverManyStepsThereAre) {
  StepCurves curves;
  Naive naive;
  std::mt19937 random(7);
  std::lognormal_distribution<double> noise(0, 1);
  Step step = 0;
  for (int i = 0; i < 40000; ++i) {
    step += 1 + static_cast<Step>(random() % 3);  // some are not seen
    const StepSample sample = Sample(step, noise(random));
    curves.Add(sample);
    naive.Add(sample);
  }
  EXPECT_LE(curves.cells().size(), StepCurves::kMaxCells);
  EXPECT_GT(curves.cells().size(), StepCurves::kMaxCells / 2 - 2);
  auto value = naive.losses.begin();
  for (const CurveCell& cell : curves.cells()) {
    ASSERT_EQ(value->first, cell.first);
    CurveRange expected;
    for (; value != naive.losses.end() && value->first <= cell.last; ++value)
      expected.Add(value->second);
    EXPECT_EQ(expected, cell.ranges[kLoss]) << "steps " << cell.first << " to " << cell.last;
  }
  EXPECT_EQ(value, naive.losses.end());
}

TEST(StepCurves, AStepThatIsDoneAgainReplacesWhatCameAfterIt) {
  StepCurves curves;
  for (Step step = 1; step <= 30; ++step) curves.Add(Sample(step, 1));
  const std::uint64_t before = curves.revision();
  curves.Add(Sample(21, 2, 2));
  EXPECT_EQ(curves.cells().size(), 21u);
  EXPECT_EQ(curves.cells().back().ranges[kLoss].last, 2);
  EXPECT_EQ(curves.last_step(), 21);
  EXPECT_GT(curves.revision(), before);
}

TEST(StepCurves, ALateStepIsIgnored) {
  StepCurves curves;
  for (Step step = 1; step <= 30; ++step) curves.Add(Sample(step, 1, 2));
  curves.Add(Sample(29, 5, 2));
  curves.Add(Sample(31, 5, 1));
  EXPECT_EQ(curves.last_step(), 30);
  EXPECT_EQ(curves.cells()[28].ranges[kLoss].greatest, 1);
}

TEST(StepCurves, StaysTrueThroughManyRecoveries) {
  StepCurves curves;
  Naive naive;
  std::mt19937 random(11);
  Step step = 0;
  Generation generation = 1;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 500 == 0) {
      ++generation;
      step = std::max<Step>(0, step - static_cast<Step>(random() % 200));
    }
    const StepSample sample = Sample(++step, static_cast<double>(random() % 1000), generation);
    curves.Add(sample);
    naive.Add(sample);
    ASSERT_LE(curves.cells().size(), StepCurves::kMaxCells);
  }
  auto value = naive.losses.begin();
  for (const CurveCell& cell : curves.cells()) {
    double last = 0;
    for (; value != naive.losses.end() && value->first <= cell.last; ++value) {
      EXPECT_GE(value->first, cell.first);
      EXPECT_GE(value->second, cell.ranges[kLoss].least);
      EXPECT_LE(value->second, cell.ranges[kLoss].greatest);
      last = value->second;
    }
    EXPECT_EQ(last, cell.ranges[kLoss].last) << "steps " << cell.first << " to " << cell.last;
  }
  EXPECT_EQ(value, naive.losses.end());
}

TEST(StepCurves, WhatIsNotFiniteLeavesAGap) {
  StepCurves curves;
  curves.Add(Sample(1, std::numeric_limits<double>::quiet_NaN()));
  curves.Add(Sample(2, std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(curves.cells()[0].ranges[kLoss].known);
  EXPECT_FALSE(curves.cells()[1].ranges[kLoss].known);
  EXPECT_TRUE(curves.cells()[1].ranges[static_cast<std::size_t>(Curve::kStepSeconds)].known);
}

TEST(StepCurves, AppendsWhatIsNewerThanTheFile) {
  StepCurves file;
  for (Step step = 1; step <= 50; ++step) file.Add(Sample(step, 1));
  StepCurves live;
  for (Step step = 40; step <= 60; ++step) live.Add(Sample(step, 2));
  file.Append(live);
  EXPECT_EQ(file.last_step(), 60);
  EXPECT_EQ(file.cells().size(), 60u);
  EXPECT_EQ(file.cells()[44].ranges[kLoss].last, 1);
  EXPECT_EQ(file.cells()[55].ranges[kLoss].last, 2);
}

}  // namespace
}  // namespace muster
