#include "worker/guardian/report_log.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(ReportLog, KeepsTheOrderOfArrival) {
  ReportLog log;
  log.Add(1, "formed", "a");
  log.Add(0, "formed", "b");
  log.Add(1, "resumed", "c");
  ASSERT_EQ(log.entries().size(), 3u);
  EXPECT_EQ(log.entries()[1].json, "b");
  EXPECT_EQ(log.entries()[2].rank, 1);
}

TEST(ReportLog, ARepeatingKindGivesWayToItsNewest) {
  ReportLog log;
  log.Add(0, "formed", "formed");
  for (int i = 0; i < 2 * ReportLog::kMaxPerRankAndKind; ++i)
    log.Add(0, "shard_written", std::to_string(i));
  ASSERT_EQ(log.entries().size(), 1u + ReportLog::kMaxPerRankAndKind);
  EXPECT_EQ(log.entries().front().json, "formed");
  EXPECT_EQ(log.entries()[1].json, std::to_string(ReportLog::kMaxPerRankAndKind));
  EXPECT_EQ(log.entries().back().json, std::to_string(2 * ReportLog::kMaxPerRankAndKind - 1));
}

TEST(ReportLog, RanksDoNotPushEachOtherOut) {
  ReportLog log;
  log.Add(0, "note", "first");
  for (int i = 0; i < 2 * ReportLog::kMaxPerRankAndKind; ++i) log.Add(1, "note", "x");
  EXPECT_EQ(log.entries().front().json, "first");
}

}  // namespace
}  // namespace muster
