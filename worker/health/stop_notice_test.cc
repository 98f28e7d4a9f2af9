#include "worker/health/stop_notice.h"

#include <gtest/gtest.h>

#include <fstream>

#include "common/base/testing/temp_dir.h"

namespace muster::worker {
namespace {

TEST(StopNotice, AFileIsANoticeOnceItExists) {
  const TempDirForTest dir;
  const StopNoticeOptions options{.file = dir / "notice"};
  EXPECT_FALSE(CheckStopNotice(options, -1).has_value());
  std::ofstream(dir / "notice") << "120\n";
  const auto notice = CheckStopNotice(options, -1);
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->kind, NodeNoticeKind::kDrain);
  EXPECT_EQ(notice->deadline_seconds, 120);
  EXPECT_NE(notice->detail.find(dir / "notice"), std::string::npos);
}

TEST(StopNotice, ACommandIsANoticeIfItExitsWithZero) {
  const TempDirForTest dir;
  const StopNoticeOptions options{.command = {"grep", "-h", "^[0-9]*$", dir / "metadata"}};
  EXPECT_FALSE(CheckStopNotice(options, -1).has_value()) << "no such file";
  std::ofstream(dir / "metadata") << "none\n";
  EXPECT_FALSE(CheckStopNotice(options, -1).has_value());
  std::ofstream(dir / "metadata") << "30\n";
  const auto notice = CheckStopNotice(options, -1);
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->deadline_seconds, 30);
}

TEST(StopNotice, AMissingCommandIsNoNotice) {
  EXPECT_FALSE(CheckStopNotice({.command = {"no-such-program-anywhere"}}, -1).has_value());
}

TEST(StopNotice, ReadsSeconds) {
  EXPECT_EQ(ParseNoticeSeconds("30"), 30);
  EXPECT_EQ(ParseNoticeSeconds(" 1.5 \r\nmore"), 1.5);
  for (const char* text :
       {"", "\n30", "soon", "30 seconds", "-3", "0", "inf", "nan", "1764158400000"})
    EXPECT_EQ(ParseNoticeSeconds(text), 0) << text;
}

TEST(StopNotice, SplitsWordsAtBlanks) {
  EXPECT_EQ(SplitWords("  curl -sf\thttp://h/x "),
            (std::vector<std::string>{"curl", "-sf", "http://h/x"}));
  EXPECT_TRUE(SplitWords("  ").empty());
}

}  // namespace
}  // namespace muster::worker
