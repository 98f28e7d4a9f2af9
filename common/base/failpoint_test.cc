#include "common/base/failpoint.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace muster {
namespace {

class FailpointTest : public testing::Test {
 protected:
  void TearDown() override { armed_failpoint = -1; }
};
using FailpointDeathTest = FailpointTest;

void PassThreeTimes() {
  Failpoint("store.begin");
  Failpoint("store.commit");
  Failpoint("store.begin");
  Failpoint("store.begin");
}

TEST_F(FailpointTest, NothingHappensWithoutTheVariable) {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    EXPECT_TRUE(ArmFailpoint(value).ok());
    PassThreeTimes();
  }
}

TEST_F(FailpointTest, WhatIsNoFailpointIsRefused) {
  for (const char* value : {"store.begi", "store.begin:", "store.begin:0", "store.begin:-1",
                            "store.begin:1x", "store.begin:99999999999", ":1", "1"}) {
    const Status status = ArmFailpoint(value);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << value;
    EXPECT_NE(status.message().find(value), std::string::npos);
    PassThreeTimes();
  }
}

TEST_F(FailpointTest, NoPassingButTheOneThatWasAskedForKills) {
  EXPECT_TRUE(ArmFailpoint("store.begin:4").ok());
  PassThreeTimes();
}

TEST_F(FailpointDeathTest, ThePassingThatWasAskedForKills) {
  EXPECT_EXIT(
      {
        (void)ArmFailpoint("store.begin:3");
        PassThreeTimes();
      },
      testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(
      {
        (void)ArmFailpoint("store.commit");
        PassThreeTimes();
      },
      testing::KilledBySignal(SIGKILL), "");
}

TEST(Failpoints, NoNameIsThereTwice) {
  EXPECT_EQ(std::set(std::begin(kFailpoints), std::end(kFailpoints)).size(),
            std::size(kFailpoints));
}

}  // namespace
}  // namespace muster
