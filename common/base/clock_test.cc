#include "common/base/clock.h"

#include <gtest/gtest.h>

#include <limits>

namespace muster {
namespace {

TEST(Deadline, AnExpiredOneStaysExpiredAndHasNothingLeft) {
  const Deadline past = Deadline::At(SystemClock().Now() - std::chrono::hours(1));
  EXPECT_TRUE(past.Expired());
  EXPECT_EQ(past.Remaining(), Duration::zero());
  EXPECT_EQ(past.RemainingMillis().count(), 0);
}

TEST(Deadline, RoundsUpSoThatAWaitNeverEndsEarly) {
  const Deadline soon = Deadline::After(std::chrono::seconds(100));
  EXPECT_FALSE(soon.Expired());
  EXPECT_GT(soon.RemainingMillis().count(), 99'000);
  EXPECT_LE(soon.RemainingMillis().count(), 100'000);
}

TEST(Clock, SecondsThereAndBack) {
  EXPECT_DOUBLE_EQ(ToSeconds(FromSeconds(1.5)), 1.5);
  EXPECT_GT(SystemClock().UnixMillis(), 1'600'000'000'000);
}

TEST(Clock, SecondsWithoutBoundAreACentury) {
  const TimePoint now = SystemClock().Now();
  for (const double seconds : {1.7e12, 1e300, std::numeric_limits<double>::infinity()}) {
    EXPECT_GT(now + FromSeconds(seconds), now + std::chrono::hours(24 * 365)) << seconds;
    EXPECT_LT(now + FromSeconds(-seconds), now) << seconds;
  }
  EXPECT_EQ(FromSeconds(std::numeric_limits<double>::quiet_NaN()), Duration::zero());
}

}  // namespace
}  // namespace muster
