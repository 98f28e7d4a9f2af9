#include "common/base/clock.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace muster
