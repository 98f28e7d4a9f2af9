#include "coordinator/control/checkpoint_clock.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kStart = TimePoint(std::chrono::hours(1));

TEST(CheckpointClockTest, TheTimeBeginsWhereTheStepBeforeWasFinished) {
  CheckpointClock clock;
  clock.StepSeen(9, kStart);
  clock.StepSeen(10, kStart + seconds(2));
  clock.StepSeen(11, kStart + seconds(4));
  EXPECT_DOUBLE_EQ(clock.Committed(10, kStart + seconds(5)).value(), 5);
}

TEST(CheckpointClockTest, ACheckpointBeforeWhichNoStepWasSeenIsNotMeasured) {
  CheckpointClock clock;
  EXPECT_FALSE(clock.Committed(1, kStart));
  clock.StepSeen(10, kStart);
  EXPECT_FALSE(clock.Committed(10, kStart + seconds(1)));
}

TEST(CheckpointClockTest, TheFirstQuickStepOfEachHalfSecondIsKept) {
  CheckpointClock clock;
  for (Step step = 1; step <= 20; ++step) clock.StepSeen(step, kStart + milliseconds(100 * step));
  // Those of steps 1, 6, 11 and 16 are known.
  EXPECT_DOUBLE_EQ(clock.Committed(10, kStart + seconds(3)).value(), 2.4);
}

TEST(CheckpointClockTest, ANewAttemptForgetsTheOldOnesSteps) {
  CheckpointClock clock;
  clock.StepSeen(9, kStart);
  clock.Begin();
  EXPECT_FALSE(clock.Committed(10, kStart + seconds(1)));
}

TEST(CheckpointClockTest, ItForgetsTheOldestOfManySteps) {
  CheckpointClock clock;
  const Step last = static_cast<Step>(CheckpointClock::kMost) + 10;
  for (Step step = 1; step <= last; ++step) clock.StepSeen(step, kStart + seconds(step));
  EXPECT_FALSE(clock.Committed(11, kStart + seconds(last)));
  EXPECT_DOUBLE_EQ(clock.Committed(12, kStart + seconds(last)).value(), double(last - 11));
}

}  // namespace
}  // namespace muster
