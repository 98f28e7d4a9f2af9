#include "worker/allocation/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <functional>
#include <mutex>
#include <optional>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "tests/support/eventually.h"

namespace muster::worker {
namespace {

class ChildProcessTest : public testing::Test {
 protected:
  // Runs the loop until the child has ended.
  ProcessExit EndOf(const std::string& script, int signal = 0,
                    const std::string& program = "/bin/sh") {
    std::optional<ProcessExit> ended;
    ChildProcess child(loop_, pool_, {program, "-c", script}, temp_ / "log",
                       [&](const ProcessExit& exit) {
                         ended = exit;
                         loop_.Stop();
                       });
    if (signal != 0) child.Signal(signal);
    loop_.Run();
    EXPECT_TRUE(ended.has_value());
    child.Signal(SIGKILL);  // no effect: it is reaped
    return ended.value_or(ProcessExit{});
  }

  TempDirForTest temp_;
  EventLoop loop_;
  WorkerPool pool_{"spawn", 1, 8};
};

TEST_F(ChildProcessTest, ItsEndIsReportedWithItsOutput) {
  EXPECT_EQ(EndOf("echo out; echo err >&2; exit 3"), (ProcessExit{3, 0}));
  EXPECT_EQ(ReadFile(temp_ / "log").value(), "out\nerr\n");
}

TEST_F(ChildProcessTest, SettingsOfAUsersClusterDoNotReachIt) {
  ::setenv("MUSTER_COORDINATOR", "10.0.0.9:1", 1);
  ::setenv("NOT_MUSTER_X", "kept", 1);
  ::setenv("MUSTER_WEBHOOK_HOSTS", "hooks.example", 1);
  EndOf("echo ${MUSTER_COORDINATOR-none} $NOT_MUSTER_X $MUSTER_WEBHOOK_HOSTS");
  ::unsetenv("MUSTER_COORDINATOR");
  ::unsetenv("NOT_MUSTER_X");
  ::unsetenv("MUSTER_WEBHOOK_HOSTS");
  EXPECT_EQ(ReadFile(temp_ / "log").value(), "none kept hooks.example\n")
      << "where events may be posted to is the user's to say";
}

TEST_F(ChildProcessTest, ASignalReachesIt) {
  EXPECT_EQ(EndOf("exec cat /dev/zero > /dev/null", SIGINT), (ProcessExit{0, SIGINT}));
}

TEST_F(ChildProcessTest, NoticesOfSlurmDoNotEndIt) {
  EXPECT_EQ(EndOf("for s in TERM USR1 USR2; do kill -$s $$; done; exit 3"), (ProcessExit{3, 0}));
}

TEST_F(ChildProcessTest, DestroyedItEndsTheProcess) {
  pid_t pid = 0;
  {
    ChildProcess child(loop_, pool_, {"/bin/sleep", "60"}, temp_ / "log",
                       [](const ProcessExit&) { ADD_FAILURE() << "told"; });
    Timer look(loop_);
    const std::function<void()> until_it_runs = [&] {
      if (child.pid() == 0) return look.Start(std::chrono::milliseconds(1), until_it_runs);
      loop_.Stop();
    };
    until_it_runs();
    loop_.Run();
    pid = child.pid();
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  // Where that takes the kernel longer than an owner waits, the loop would reap it.
  EXPECT_TRUE(
      Eventually([pid] { return ::kill(pid, 0) != 0 || ::waitpid(pid, nullptr, WNOHANG) == pid; }));
}

TEST_F(ChildProcessTest, AMissingProgramEndsAsInAShell) {
  EXPECT_EQ(EndOf("", 0, "/no/such/program"), (ProcessExit{127, 0}));
}

// The program's file system does not answer: heartbeats continue.
TEST_F(ChildProcessTest, AStartThatHangsDelaysNoOther) {
  std::mutex stalled;
  stalled.lock();
  ASSERT_TRUE(pool_.TrySubmit([&] { const std::lock_guard wait(stalled); }));
  ChildProcess child(loop_, pool_, {"/bin/true"}, temp_ / "log",
                     [&](const ProcessExit&) { loop_.Stop(); });
  bool pulsed = false;
  Timer ask_interval(loop_);
  ask_interval.Start(std::chrono::milliseconds(20), [&] {
    pulsed = child.pid() == 0;
    stalled.unlock();
  });
  loop_.Run();
  EXPECT_TRUE(pulsed);
}

}  // namespace
}  // namespace muster::worker
