#include "common/process/spawn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/open_files.h"
#include "common/base/proc_reader.h"
#include "common/base/testing/temp_dir.h"
#include "common/process/exit_status.h"

namespace muster {
namespace {

// Runs a shell command as a child and returns how it ended.
ProcessExit RunShell(const std::string& command, SpawnOptions options) {
  options.argv = {"/bin/sh", "-c", command};
  const auto pid = SpawnChild(options);
  EXPECT_TRUE(pid.ok()) << pid.status().ToString();
  if (!pid.ok()) return {.exit_code = -1};
  int wait_status = 0;
  EXPECT_EQ(::waitpid(*pid, &wait_status, 0), *pid);
  return ProcessExitFromWaitStatus(wait_status);
}

UniqueFd OpenOutput(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
}

TEST(SpawnChild, ReportsExitCodesAndSignals) {
  EXPECT_EQ(RunShell("exit 3", {}), (ProcessExit{.exit_code = 3}));
  EXPECT_EQ(RunShell("kill -KILL $$", {}), (ProcessExit{.signal = SIGKILL}));
}

TEST(SpawnChild, EverySignalIsAtItsDefaultButThoseThatAreToBeIgnored) {
  EXPECT_EQ(RunShell("kill -USR2 $$; exit 3", {}), (ProcessExit{.signal = SIGUSR2}));
  const SpawnOptions ignoring{.ignored_signals = {SIGTERM, SIGUSR2}};
  EXPECT_EQ(RunShell("kill -USR2 $$; kill -TERM $$; exit 3", ignoring),
            (ProcessExit{.exit_code = 3}));
  EXPECT_EQ(RunShell("kill -INT $$; exit 3", ignoring), (ProcessExit{.signal = SIGINT}));
}

TEST(SpawnChild, GivesExactlyTheGivenEnvironment) {
  const TempDirForTest dir;
  const UniqueFd out = OpenOutput(dir / "out");
  SpawnOptions options{
      .argv = {"/usr/bin/env"}, .environment = {"ONE=1", "TWO=a b"}, .output_fd = out.get()};
  const auto pid = SpawnChild(options);
  ASSERT_TRUE(pid.ok());
  ::waitpid(*pid, nullptr, 0);
  EXPECT_EQ(ReadFile(dir / "out").value(), "ONE=1\nTWO=a b\n");
}

TEST(SpawnChild, GivesBackTheLimitOfOpenFilesThatThisProgramRaisedForItself) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{512, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  RaiseOpenFilesLimit();
  const TempDirForTest dir;
  const UniqueFd out = OpenOutput(dir / "out");
  RunShell("ulimit -Sn; ulimit -Hn", {.output_fd = out.get()});
  EXPECT_EQ(ReadFile(dir / "out").value(), "512\n" + std::to_string(before.rlim_max) + "\n");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(SpawnChild, ReadsTheGivenStandardInput) {
  const TempDirForTest dir;
  const UniqueFd in(::open("/proc/sys/kernel/ostype", O_RDONLY | O_CLOEXEC));
  const UniqueFd out = OpenOutput(dir / "out");
  RunShell("read line; echo got $line", {.input_fd = in.get(), .output_fd = out.get()});
  EXPECT_EQ(ReadFile(dir / "out").value(), "got Linux\n");
}

TEST(SpawnChild, ClosesEveryDescriptorButTheInherited) {
  const TempDirForTest dir;
  const UniqueFd out = OpenOutput(dir / "out");
  // Not close-on-exec on purpose: it must not leak all the same.
  const UniqueFd leak(::open("/dev/null", O_RDONLY));
  const UniqueFd passed(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  RunShell("for f in /proc/$$/fd/*; do [ -L $f ] && echo ${f##*/} && readlink $f; done",
           {.environment = {"PATH=/usr/bin:/bin"},
            .output_fd = out.get(),
            .inherited = {{passed.get(), 5}}});
  const std::string log = dir / "out";
  EXPECT_EQ(ReadFile(log).value(), "0\n/dev/null\n1\n" + log + "\n2\n" + log + "\n5\n/dev/zero\n");
}

TEST(SpawnChild, InheritedDescriptorsMaySitOnEachOthersTargets) {
  const TempDirForTest dir;
  const UniqueFd out = OpenOutput(dir / "out");
  UniqueFd a(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  UniqueFd b(::open("/dev/full", O_RDONLY | O_CLOEXEC));
  RunShell(
      "readlink /proc/$$/fd/" + std::to_string(a.get()) + " /proc/$$/fd/" + std::to_string(b.get()),
      {.environment = {"PATH=/usr/bin:/bin"},
       .output_fd = out.get(),
       .inherited = {{a.get(), b.get()}, {b.get(), a.get()}}});
  EXPECT_EQ(ReadFile(dir / "out").value(), "/dev/full\n/dev/zero\n");
}

TEST(SpawnChild, AProgramThatCannotBeExecutedIsAnErrorOfTheCall) {
  const auto pid = SpawnChild({.argv = {"/no/such/program"}});
  EXPECT_EQ(pid.status().message(), "execute /no/such/program: No such file or directory");
  const auto nowhere = SpawnChild({.argv = {"/bin/true"}, .working_directory = "/no/such/place"});
  EXPECT_EQ(nowhere.status().message(),
            "enter directory /no/such/place: No such file or directory");
}

TEST(SpawnChild, LeadsAGroupAndSessionOfItsOwn) {
  const auto pid = SpawnChild({.argv = {"/bin/sleep", "60"}});
  ASSERT_TRUE(pid.ok());
  EXPECT_EQ(::getpgid(*pid), *pid);
  EXPECT_EQ(::getsid(*pid), *pid);
  ::kill(-*pid, SIGKILL);
  ::waitpid(*pid, nullptr, 0);
}

TEST(SpawnChild, PidfdReportsTheEnd) {
  const auto pid = SpawnChild({.argv = {"/bin/sleep", "60"}});
  ASSERT_TRUE(pid.ok());
  const auto pidfd = OpenPidfd(*pid);
  ASSERT_TRUE(pidfd.ok());
  pollfd entry{pidfd->get(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
  ::kill(*pid, SIGKILL);
  EXPECT_EQ(::poll(&entry, 1, 5000), 1);
  ::waitpid(*pid, nullptr, 0);
}

TEST(SpawnDetached, IsNoChildAndNotInTheSession) {
  const TempDirForTest dir;
  int fds[2];
  ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
  UniqueFd reading(fds[0]), writing(fds[1]);
  const Status status =
      SpawnDetached({.argv = {"/bin/sh", "-c", "echo $$ $PPID; read x < /dev/zero"},
                     .environment = {"PATH=/usr/bin:/bin"},
                     .output_fd = writing.get()});
  ASSERT_TRUE(status.ok()) << status.ToString();
  writing.reset();
  char text[64] = {};
  ASSERT_GT(::read(reading.get(), text, sizeof text - 1), 0);
  int pid = 0, parent = 0;
  ASSERT_EQ(std::sscanf(text, "%d %d", &pid, &parent), 2);
  EXPECT_NE(parent, ::getpid());
  EXPECT_NE(::getsid(pid), ::getsid(0));
  ::kill(pid, SIGKILL);
}

TEST(SpawnDetached, ReportsAProgramThatCannotBeExecuted) {
  EXPECT_FALSE(SpawnDetached({.argv = {"/no/such/program"}}).ok());
}

TEST(FindProgram, SearchesAsExecDoes) {
  EXPECT_EQ(FindProgram("sh", "/nowhere:/bin", "/").value(), "/bin/sh");
  EXPECT_EQ(FindProgram("/bin/sh", "", "/").value(), "/bin/sh");
  EXPECT_EQ(FindProgram("bin/sh", "", "").value(), "/bin/sh");
  EXPECT_FALSE(FindProgram("sh", "/nowhere", "/").ok());
  EXPECT_FALSE(FindProgram("/etc/passwd", "", "/").ok());
}

}  // namespace
}  // namespace muster
