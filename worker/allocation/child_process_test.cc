#include "worker/allocation/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <optional>

#include "common/base/files.h"
#include "common/process/temp_dir_for_test.h"

namespace muster::worker {
namespace {

class ChildProcessTest : public testing::Test {
 protected:
  // Runs the loop until the child has ended.
  ProcessExit EndOf(const std::string& script, int signal = 0) {
    std::optional<ProcessExit> ended;
    auto child = ChildProcess::Start(loop_, {"/bin/sh", "-c", script}, temp_ / "log",
                                     [&](const ProcessExit& exit) {
                                       ended = exit;
                                       loop_.Stop();
                                     });
    EXPECT_TRUE(child.ok()) << child.status().ToString();
    if (!child.ok()) return {};
    if (signal != 0) (*child)->Signal(signal);
    loop_.Run();
    EXPECT_TRUE(ended.has_value());
    (*child)->Signal(SIGKILL);  // of nobody: it is reaped
    return ended.value_or(ProcessExit{});
  }

  TempDirForTest temp_;
  EventLoop loop_;
};

TEST_F(ChildProcessTest, ItsEndIsToldWithWhatItSaid) {
  EXPECT_EQ(EndOf("echo out; echo err >&2; exit 3"), (ProcessExit{3, 0}));
  EXPECT_EQ(ReadFile(temp_ / "log").value(), "out\nerr\n");
}

TEST_F(ChildProcessTest, SettingsOfAUsersClusterDoNotReachIt) {
  ::setenv("MUSTER_COORDINATOR", "10.0.0.9:1", 1);
  ::setenv("NOT_MUSTER_X", "kept", 1);
  EndOf("echo ${MUSTER_COORDINATOR-none} $NOT_MUSTER_X");
  ::unsetenv("MUSTER_COORDINATOR");
  ::unsetenv("NOT_MUSTER_X");
  EXPECT_EQ(ReadFile(temp_ / "log").value(), "none kept\n");
}

TEST_F(ChildProcessTest, ASignalReachesIt) {
  EXPECT_EQ(EndOf("exec cat /dev/zero > /dev/null", SIGTERM), (ProcessExit{0, SIGTERM}));
}

TEST_F(ChildProcessTest, DestroyedItEndsTheProcess) {
  pid_t pid = 0;
  {
    auto child = ChildProcess::Start(loop_, {"/bin/sleep", "60"}, temp_ / "log",
                                     [](const ProcessExit&) { ADD_FAILURE() << "told"; });
    ASSERT_TRUE(child.ok());
    pid = (*child)->pid();
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST_F(ChildProcessTest, AProgramThatIsNotThereIsAnError) {
  const auto child =
      ChildProcess::Start(loop_, {"/no/such/program"}, temp_ / "log", [](const ProcessExit&) {});
  EXPECT_FALSE(child.ok());
}

}  // namespace
}  // namespace muster::worker
