#include "common/base/thread_priority.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

namespace muster {
namespace {

TEST(ThreadPriority, OnlyTheCallingThreadStepsBack) {
  const int before = ::getpriority(PRIO_PROCESS, 0);
  int inside = 0;
  std::thread([&] {
    LowerThreadPriority();
    inside = ::getpriority(PRIO_PROCESS, 0);
  }).join();
  EXPECT_GE(inside, 10);
  EXPECT_GE(inside, before);
  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), before);
}

TEST(ThreadPriority, AnIdleThreadsReadsWaitForEverybodyElses) {
  constexpr int kProcess = 1;
  const long before = ::syscall(SYS_ioprio_get, kProcess, 0);
  long inside = 0;
  std::thread([&] {
    LowerThreadPriorityToIdle();
    inside = ::syscall(SYS_ioprio_get, kProcess, 0);
  }).join();
  EXPECT_EQ(inside >> 13, 3);
  EXPECT_EQ(::syscall(SYS_ioprio_get, kProcess, 0), before);
}

}  // namespace
}  // namespace muster
