#include "common/process/run_child.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <cstdlib>
#include <string>

#include "common/base/files.h"
#include "common/base/proc_reader.h"
#include "common/base/testing/temp_dir.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

RunChildOptions Shell(const std::string& script) {
  RunChildOptions options;
  options.spawn.argv = {"/bin/sh", "-c", script};
  options.spawn.environment = {"PATH=/usr/bin:/bin"};
  options.limit = 10s;
  return options;
}

TEST(RunChild, GivesTheInputAndTakesTheOutput) {
  RunChildOptions options = Shell("cat; echo problem >&2");
  options.input = "hello\n";
  const auto outcome = RunChild(options);
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_TRUE(outcome->ok());
  EXPECT_EQ(outcome->output, "hello\nproblem\n");
}

TEST(RunChild, TakesStandardErrorApartWhereThatIsAskedFor) {
  RunChildOptions options = Shell("echo {}; echo problem >&2; exit 1");
  options.errors_apart = true;
  const auto outcome = RunChild(options);
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_EQ(outcome->output, "{}\n");
  EXPECT_EQ(outcome->errors, "problem\n");
  EXPECT_EQ(outcome->Describe(), "exit code 1: problem");
}

TEST(RunChild, AChildThatDoesNotReadItsInputEndsAllTheSame) {
  RunChildOptions options = Shell("exit 3");
  options.input = std::string(1 << 20, 'x');
  const auto outcome = RunChild(options);
  ASSERT_TRUE(outcome.ok());
  EXPECT_FALSE(outcome->ok());
  EXPECT_EQ(outcome->exit, (ProcessExit{.exit_code = 3}));
}

TEST(RunChild, KeepsTheEndOfLongOutput) {
  RunChildOptions options = Shell("i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done");
  options.max_output = 100;
  const auto outcome = RunChild(options);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->output.size(), 100u);
  EXPECT_TRUE(outcome->output.ends_with("line 1999\n"));
}

TEST(RunChild, TheLimitEndsTheWholeGroup) {
  const TempDirForTest dir;
  RunChildOptions options = Shell("sleep 1000 & echo $! >pid.new; mv pid.new pid; wait");
  options.spawn.working_directory = dir.path();
  options.limit = 300ms;
  const auto outcome = RunChild(options);
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->timed_out);
  EXPECT_EQ(outcome->exit.signal, SIGKILL);
  const auto pid = ReadFile(dir / "pid");
  ASSERT_TRUE(pid.ok());
  EXPECT_TRUE(Eventually([&] {
    const auto info = ReadProcess(std::atoi(pid->c_str()));
    return !info.ok() || info->state == 'Z';
  }));
}

TEST(RunChild, AChildThatLeavesAProcessBehindIsNotWaitedFor) {
  const auto outcome = RunChild(Shell("sleep 1000 & echo done"));
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->ok());
  EXPECT_EQ(outcome->output, "done\n");
}

TEST(RunChild, IsCancelledByADescriptor) {
  const UniqueFd cancel(::eventfd(1, EFD_CLOEXEC));
  RunChildOptions options = Shell("sleep 1000");
  options.cancel_fd = cancel.get();
  const auto outcome = RunChild(options);
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->cancelled);
  EXPECT_FALSE(outcome->ok());
}

TEST(RunChild, AProgramThatIsNotThereIsAnError) {
  RunChildOptions options;
  options.spawn.argv = {"/no/such/program"};
  EXPECT_FALSE(RunChild(options).ok());
}

TEST(RunChild, DescribesAnEndInOneLine) {
  const ChildOutcome failed{.exit = {.exit_code = 3}, .output = "first\nno such host\n\n"};
  EXPECT_EQ(failed.Describe(), "exit code 3: no such host");
  EXPECT_EQ((ChildOutcome{.exit = {.signal = SIGKILL}}).Describe(), "SIGKILL");
  EXPECT_EQ((ChildOutcome{.timed_out = true}).Describe(), "it did not end in time");
}

}  // namespace
}  // namespace muster
