#include "common/process/process_id.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/process/spawn.h"

namespace muster {
namespace {

class ProcessIdTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto child = SpawnChild({.argv = {"/bin/sleep", "60"}, .die_with_parent = true});
    ASSERT_TRUE(child.ok());
    pid_ = *child;
  }
  // By what signal the child ends after one that it gets in any case.
  int EndOf() const {
    ::kill(pid_, SIGTERM);
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    return WTERMSIG(status);
  }
  pid_t pid_ = 0;
};

TEST_F(ProcessIdTest, AProcessThatHasThePidOfAnEarlierOneIsNotSignalled) {
  const auto id = FindProcess(pid_);
  ASSERT_TRUE(id.has_value());
  const ProcessId earlier{pid_, id->start_time - 1};
  EXPECT_FALSE(IsAlive(earlier));
  EXPECT_FALSE(SignalProcess(earlier, SIGKILL));
  EXPECT_EQ(EndOf(), SIGTERM);
}

TEST_F(ProcessIdTest, TheProcessItselfIsSignalledUntilItHasEnded) {
  const auto id = FindProcess(pid_);
  ASSERT_TRUE(id.has_value());
  EXPECT_TRUE(IsAlive(*id));
  EXPECT_TRUE(SignalProcess(*id, SIGKILL));
  siginfo_t ended;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(FindProcess(pid_).has_value()) << "a zombie";
  EXPECT_FALSE(SignalProcess(*id, SIGKILL)) << "a zombie";
  ASSERT_EQ(::waitpid(pid_, nullptr, 0), pid_);
  EXPECT_FALSE(SignalProcess(*id, SIGKILL));
}

TEST_F(ProcessIdTest, NumbersThatMeanGroupsToKillMeanNoProcessHere) {
  for (const pid_t pid : {0, -1, -pid_}) {
    EXPECT_FALSE(FindProcess(pid).has_value());
    EXPECT_FALSE(SignalProcess({pid, 0}, SIGKILL));
  }
  EXPECT_EQ(EndOf(), SIGTERM);
}

}  // namespace
}  // namespace muster
