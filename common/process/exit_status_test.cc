#include "common/process/exit_status.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace muster {
namespace {

TEST(ExitStatus, DistinguishesCodesFromSignals) {
  // The layout of a wait status: the code in the second byte, a signal in the low bits.
  EXPECT_EQ(ProcessExitFromWaitStatus(3 << 8), (ProcessExit{.exit_code = 3}));
  EXPECT_EQ(ProcessExitFromWaitStatus(SIGKILL), (ProcessExit{.signal = SIGKILL}));
}

TEST(ExitStatus, DescribesWhatPeopleCallIt) {
  EXPECT_EQ(DescribeExit({.exit_code = 0}), "exit code 0");
  EXPECT_EQ(DescribeExit({.exit_code = 78}), "exit code 78");
  EXPECT_EQ(DescribeExit({.signal = SIGKILL}), "SIGKILL");
  EXPECT_EQ(DescribeExit({.signal = SIGSEGV}), "SIGSEGV");
}

}  // namespace
}  // namespace muster
