#include "worker/health/xid.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

TEST(Xid, ThoseThatNeedAResetOrMoreAreFatalForTheNode) {
  for (const int xid : {48, 54, 62, 64, 79, 95, 109, 110, 119, 120, 136})
    EXPECT_TRUE(JudgeXid(xid).fatal()) << xid;
  for (const int xid : {13, 31, 43, 45, 63, 69, 74, 92, 94})
    EXPECT_FALSE(JudgeXid(xid).fatal()) << xid;
}

TEST(Xid, NamesWhatToDo) {
  EXPECT_EQ(JudgeXid(79).action, XidAction::kRebootNode);
  EXPECT_EQ(JudgeXid(79).what, "the GPU has fallen off the bus");
  EXPECT_EQ(JudgeXid(79).advice, "reboot the node");
  EXPECT_EQ(JudgeXid(94).action, XidAction::kRestartProcess);
  EXPECT_EQ(JudgeXid(54).action, XidAction::kService);
}

TEST(Xid, AnUnknownNumberIsReportedAndNothingElse) {
  EXPECT_EQ(JudgeXid(9999).action, XidAction::kNote);
  EXPECT_FALSE(JudgeXid(9999).fatal());
  EXPECT_TRUE(JudgeXid(9999).what.empty());
}

TEST(Xid, EveryRecoveryThatTheDriverWantsIsFatal) {
  EXPECT_FALSE(JudgeRecoveryAction(0).fatal());
  for (int action = 1; action <= 5; ++action) EXPECT_TRUE(JudgeRecoveryAction(action).fatal());
  EXPECT_EQ(JudgeRecoveryAction(2).action, XidAction::kRebootNode);
}

TEST(Xid, ReadsTheNewRecoveryAction) {
  EXPECT_EQ(ParseRecoveryAction("GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot "
                                "Required)"),
            2);
  EXPECT_EQ(ParseRecoveryAction("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 "
                                "(None)"),
            0);
  EXPECT_EQ(ParseRecoveryAction("GPU has fallen off the bus."), std::nullopt);
  EXPECT_EQ(ParseRecoveryAction("GPU recovery action changed from 0x0 (None)"), std::nullopt);
  EXPECT_EQ(ParseRecoveryAction("recovery action changed from 0x0 to 0xz"), std::nullopt);
}

}  // namespace
}  // namespace muster::worker
