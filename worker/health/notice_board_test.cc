#include "worker/health/notice_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using namespace std::chrono_literals;

const TimePoint kStart = TimePoint() + 1h;

NodeNotice Memory() {
  return {.kind = NodeNoticeKind::kMemoryPressure, .detail = "short of memory"};
}
NodeNotice Xid() {
  return {.kind = NodeNoticeKind::kXid, .detail = "Xid 79", .devices = {"1"}, .fatal = true};
}
NodeNotice Clear(const std::string& detail, std::vector<std::string> standing = {}) {
  return {.kind = NodeNoticeKind::kClear, .detail = detail, .standing = std::move(standing)};
}

TEST(NoticeBoard, SentAtOnceAndThenOnceASecond) {
  NoticeBoard board;
  EXPECT_THAT(board.Due(kStart), IsEmpty());
  board.Set("memory", Memory(), kStart);
  EXPECT_THAT(board.Due(kStart), ElementsAre(Memory()));
  board.Set("memory", Memory(), kStart + 500ms);
  EXPECT_THAT(board.Due(kStart + 500ms), IsEmpty());
  EXPECT_THAT(board.Due(kStart + 1s), ElementsAre(Memory()));
  EXPECT_EQ(board.counts().at(NodeNoticeKind::kMemoryPressure), 1u);
}

TEST(NoticeBoard, AChangeIsSentAtOnce) {
  NoticeBoard board;
  board.Set("memory", Memory(), kStart);
  board.Due(kStart);
  NodeNotice worse = Memory();
  worse.detail = "out of memory soon";
  board.Set("memory", worse, kStart + 10ms);
  EXPECT_THAT(board.Due(kStart + 10ms),
              ElementsAre(worse, Clear("over: short of memory", {"out of memory soon"})));
}

TEST(NoticeBoard, ANewStreamHearsAllAgain) {
  NoticeBoard board;
  board.Set("memory", Memory(), kStart);
  board.Due(kStart);
  board.Reconnected();
  EXPECT_THAT(board.Due(kStart + 1ms), ElementsAre(Memory(), Clear("", {"short of memory"})));
}

TEST(NoticeBoard, ANewStreamHearsWhatEndedWhileThereWasNone) {
  NoticeBoard board;
  board.Set("memory", Memory(), kStart);
  board.Due(kStart);
  board.Clear("memory");
  board.Due(kStart + 1ms);  // without a receiver
  board.Reconnected();
  EXPECT_THAT(board.Due(kStart + 2ms), ElementsAre(Clear("")));
}

TEST(NoticeBoard, WhenOneMatterIsOverTheClearNamesWhatStillHolds) {
  NoticeBoard board;
  board.Set("memory", Memory(), kStart);
  board.Set("xid:1:79", Xid(), kStart);
  board.Due(kStart);
  board.Clear("memory");
  EXPECT_THAT(board.Due(kStart + 1ms), ElementsAre(Clear("over: short of memory", {"Xid 79"})));
  EXPECT_THAT(board.Due(kStart + 2ms), IsEmpty());
}

TEST(NoticeBoard, WhatWasNeverSentNeedsNoClear) {
  NoticeBoard board;
  board.Set("memory", Memory(), kStart);
  board.Clear("memory");
  board.Clear("memory");
  EXPECT_THAT(board.Due(kStart), IsEmpty());
}

TEST(NoticeBoard, APassingMatterIsOverByItself) {
  NoticeBoard board;
  board.Set("xid:1:31", Xid(), kStart, kStart + 60s);
  board.Due(kStart);
  EXPECT_TRUE(board.Has("xid:1:31"));
  EXPECT_THAT(board.Due(kStart + 60s), ElementsAre(Clear("over: Xid 79")));
  EXPECT_FALSE(board.Has("xid:1:31"));
}

TEST(NoticeBoard, ClearsAllThatBeginAlike) {
  NoticeBoard board;
  board.Set("xid:1:79", Xid(), kStart);
  board.Set("xid:1:action", Xid(), kStart);
  board.Set("xid:11:79", Xid(), kStart);
  board.ClearAll("xid:1:");
  EXPECT_FALSE(board.Has("xid:1:79"));
  EXPECT_FALSE(board.Has("xid:1:action"));
  EXPECT_TRUE(board.Has("xid:11:79"));
}

TEST(NoticeBoard, TroublesAreWhatIsTheMatterNow) {
  NoticeBoard board;
  board.Set("drain", {.kind = NodeNoticeKind::kDrain, .detail = "spot notice"}, kStart);
  board.Set("memory", Memory(), kStart);
  EXPECT_THAT(board.Troubles(), ElementsAre("short of memory"));
  board.Clear("memory");
  EXPECT_THAT(board.Troubles(), IsEmpty());
}

TEST(NoticeBoard, ADeadlineRunsDown) {
  NoticeBoard board;
  const NodeNotice drain{
      .kind = NodeNoticeKind::kDrain, .detail = "spot notice", .deadline_seconds = 30};
  board.Set("drain", drain, kStart);
  EXPECT_EQ(board.Due(kStart).at(0).deadline_seconds, 30);
  board.Set("drain", drain, kStart + 10s);
  EXPECT_EQ(board.Due(kStart + 10s).at(0).deadline_seconds, 20);
  // 0 would mean that it is not known.
  EXPECT_GT(board.Due(kStart + 40s).at(0).deadline_seconds, 0);
  EXPECT_LT(board.Due(kStart + 50s).at(0).deadline_seconds, 1);
}

}  // namespace
}  // namespace muster::worker
