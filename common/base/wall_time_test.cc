#include "common/base/wall_time.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(WallTime, IsWrittenInUtc) {
  EXPECT_EQ(UtcTime(0), "1970-01-01 00:00:00 UTC");
  EXPECT_EQ(UtcTime(1'800'000'000'999), "2027-01-15 08:00:00 UTC");
  EXPECT_EQ(Rfc3339(1'800'000'000'999), "2027-01-15T08:00:00Z");
}

TEST(WallTime, ReadsRfc3339WithAnyOffset) {
  EXPECT_EQ(ParseRfc3339("1970-01-01T00:00:00Z"), 0);
  EXPECT_EQ(ParseRfc3339("2027-01-15T08:00:00Z"), 1'800'000'000'000);
  EXPECT_EQ(ParseRfc3339("2027-01-15T08:00:00.25Z"), 1'800'000'000'250);
  EXPECT_EQ(ParseRfc3339("2027-01-15T08:00:00.9999999Z"), 1'800'000'000'999);
  EXPECT_EQ(ParseRfc3339("2027-01-15T13:30:00+05:30"), 1'800'000'000'000);
  EXPECT_EQ(ParseRfc3339("2027-01-14T23:00:00-09:00"), 1'800'000'000'000);
  EXPECT_EQ(ParseRfc3339("2028-02-29T00:00:00z"), 1'835'395'200'000);
  for (const std::int64_t time : {std::int64_t{0}, std::int64_t{253'402'300'799'000}})
    EXPECT_EQ(ParseRfc3339(Rfc3339(time)), time);
}

TEST(WallTime, RefusesWhatIsNoTime) {
  for (const char* text :
       {"", "2027-01-15", "2027-01-15T08:00Z", "2027-01-15T08:00:00", "2027-01-15 08:00:00Z",
        "2027-13-15T08:00:00Z", "2027-02-29T08:00:00Z", "2027-01-15T24:00:00Z",
        "2027-01-15T08:60:00Z", "2027-01-15T08:00:60Z", "2027-01-15T08:00:00.Z",
        "2027-01-15T08:00:00+0100", "2027-01-15T08:00:00+24:00", "2027-01-15T08:00:00Z ",
        "1969-12-31T23:59:59Z", "1970-01-01T00:00:00+00:01", "+027-01-15T08:00:00Z",
        "2027-1-15T08:00:00Z", "now"})
    EXPECT_EQ(ParseRfc3339(text), std::nullopt) << text;
}

TEST(WallTime, TakesADateOrATimeOfTheDayOffTheFront) {
  std::string_view date = "2027-01-15, then";
  const auto day = TakeCivilTime(&date);
  ASSERT_TRUE(day);
  EXPECT_EQ(day->day, 15);
  EXPECT_EQ(day->hour, 0);
  EXPECT_EQ(date, ", then");
  std::string_view minute = "2027-01-15T08:41";
  const auto at = TakeCivilTime(&minute);
  ASSERT_TRUE(at);
  EXPECT_EQ(at->minute, 41);
  EXPECT_TRUE(minute.empty());
  std::string_view wrong = "2027-01-15T8";
  EXPECT_FALSE(TakeCivilTime(&wrong));
  EXPECT_EQ(wrong, "2027-01-15T8") << "it is left as it is";
}

}  // namespace
}  // namespace muster
