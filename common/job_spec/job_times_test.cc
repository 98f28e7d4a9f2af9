#include "common/job_spec/job_times.h"

#include <gtest/gtest.h>
#include <time.h>

#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

namespace muster {
namespace {

constexpr std::int64_t kNow = 1'800'000'000'000;  // 2027-01-15T08:00:00Z

// Puts the process into a time zone, and back at its end.
class ZoneForTest {
 public:
  explicit ZoneForTest(const char* zone) {
    if (const char* before = std::getenv("TZ")) before_ = before;
    Set(zone);
  }
  ~ZoneForTest() { Set(before_ ? before_->c_str() : nullptr); }

 private:
  static void Set(const char* zone) {
    zone == nullptr ? ::unsetenv("TZ") : ::setenv("TZ", zone, /*overwrite=*/1);
    ::tzset();
  }
  std::optional<std::string> before_;
};

TEST(JobTimes, DurationsAreReadAndWritten) {
  for (const auto& [text, seconds] : {std::pair("90s", 90), std::pair("90m", 5400),
                                      std::pair("1h30m", 5400), std::pair("2d", 172800)})
    EXPECT_EQ(ParseSeconds(text), seconds) << text;
  EXPECT_EQ(SpanText(0), "0s");
  EXPECT_EQ(SpanText(90), "1m30s");
  EXPECT_EQ(SpanText(5400), "1h30m");
  EXPECT_EQ(SpanText(172'801), "2d1s");
  for (const std::int64_t seconds : {std::int64_t{1}, std::int64_t{86'399}, kMaxSpanSeconds})
    EXPECT_EQ(ParseSeconds(SpanText(seconds)), seconds);
}

TEST(JobTimes, WhatIsNoDurationOrLongerThanACenturyIsRefused) {
  for (const char* text : {"", "5", "h", "-1h", "1.5h", "1h 30m", "1w", "36501d", "36500d1s",
                           "9223372036854775807s", "9223372036854775808s"})
    EXPECT_EQ(ParseSeconds(text), std::nullopt) << text;
}

TEST(JobTimes, ABeginCountsFromNowOrIsATime) {
  EXPECT_EQ(*ResolveBegin("now", kNow), kNow);
  EXPECT_EQ(*ResolveBegin("now+1h30m", kNow), kNow + 5'400'000);
  EXPECT_EQ(*ResolveBegin("2027-01-15T09:00:00+01:00", 0), kNow);
  EXPECT_TRUE(IsRelativeBegin("now"));
  EXPECT_TRUE(IsRelativeBegin("now+2h"));
  EXPECT_FALSE(IsRelativeBegin("2027-01-15"));
}

TEST(JobTimes, ATimeWithoutAZoneIsLocal) {
  const ZoneForTest zone("XYZ-5:30");  // 5 h 30 min ahead of UTC
  EXPECT_EQ(*ResolveBegin("2027-01-15T13:30:00", 0), kNow);
  EXPECT_EQ(*ResolveBegin("2027-01-15T13:30", 0), kNow);
  EXPECT_EQ(*ResolveBegin("2027-01-16", 0), kNow + 37'800'000) << "its midnight";
  EXPECT_EQ(*ResolveBegin("2027-01-15T08:00:00Z", 0), kNow) << "of any zone";
}

TEST(JobTimes, WhatIsNoBeginIsRefusedWithTheForms) {
  for (const char* text :
       {"", "tomorrow", "now+", "now-1h", "now+5", "nowhere", "06:00", "2027-01-15T", "2027-02-30",
        "2027-01-15T08:00+01:00", "2027-01-15 08:00"}) {
    const auto begin = ResolveBegin(text, kNow);
    ASSERT_FALSE(begin.ok()) << text;
    EXPECT_NE(begin.status().message().find("now+2h"), std::string::npos);
  }
}

}  // namespace
}  // namespace muster
