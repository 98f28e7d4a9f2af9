#include "common/runtime/exit_deadline.h"

#include <gtest/gtest.h>

#include <future>

namespace muster {
namespace {

TEST(ExitDeadlineDeathTest, EndsTheProcessThatHangsWithItsExitCode) {
  EXPECT_EXIT(
      {
        const ExitDeadline deadline(std::chrono::milliseconds(10), 7);
        std::promise<void> never;
        never.get_future().wait();
      },
      ::testing::ExitedWithCode(7), "exiting without waiting for it");
}

TEST(ExitDeadlineDeathTest, DoesNothingToAProgramThatEndsInTime) {
  EXPECT_EXIT(
      {
        { const ExitDeadline deadline(std::chrono::hours(1), 7); }
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace muster
