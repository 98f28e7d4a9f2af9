#include "trainer/supervise/rank_faults.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <new>
#include <string>
#include <vector>

#include "common/base/proc_reader.h"
#include "tests/support/eventually.h"
#include "trainer/core/train_status.h"

namespace muster {
namespace {

class RecordingEffects final : public RankFaultEffects {
 public:
  void Hang() override { did.push_back("hang"); }
  void Exit(int code) override { did.push_back("exit " + std::to_string(code)); }
  void RunOutOfMemory() override { did.push_back("oom"); }
  void Sleep(Duration time) override {
    did.push_back("sleep " + std::to_string(std::lround(ToSeconds(time) * 1000)) + " ms");
  }
  std::vector<std::string> did;
};

class RankFaultsTest : public ::testing::Test {
 protected:
  void Arm(const char* kind, const char* argument = "") {
    const Status armed = faults_.Arm(kind, argument);
    ASSERT_TRUE(armed.ok()) << armed.ToString();
  }
  // What one step does, micro-batches and all.
  std::vector<std::string> Step() {
    effects_.did.clear();
    for (int m = 0; m < 2; ++m) {
      faults_.AtData();
      if (std::isnan(faults_.LossFactor())) effects_.did.push_back("nan");
    }
    effects_.did.push_back("collective");
    faults_.BeforeLastCollective(std::chrono::milliseconds(200));
    return effects_.did;
  }
  using Did = std::vector<std::string>;

  RecordingEffects effects_;
  RankFaults faults_{effects_};
};

TEST_F(RankFaultsTest, NothingHappensUnarmed) { EXPECT_EQ(Step(), Did{"collective"}); }

TEST_F(RankFaultsTest, EachStrikesOnceAtItsPoint) {
  const std::pair<const char*, Did> kCases[] = {{"hang-data", {"hang", "collective"}},
                                                {"hang-collective", {"collective", "hang"}},
                                                {"nan", {"nan", "collective"}},
                                                {"oom", {"oom", "collective"}}};
  for (const auto& [kind, did] : kCases) {
    Arm(kind);
    EXPECT_EQ(Step(), did) << kind;
    EXPECT_EQ(Step(), Did{"collective"}) << kind;
  }
  Arm("exit", "3");
  EXPECT_EQ(Step(), (Did{"exit 3", "collective"}));
  EXPECT_EQ(Step(), Did{"collective"});
}

TEST_F(RankFaultsTest, SlowStretchesEveryStepUntilItIsTakenBack) {
  Arm("slow", "30%");
  EXPECT_EQ(Step(), (Did{"collective", "sleep 60 ms"}));
  EXPECT_EQ(Step(), (Did{"collective", "sleep 60 ms"}));
  Arm("slow", "0.5");
  EXPECT_EQ(Step(), (Did{"collective", "sleep 100 ms"}));
  Arm("slow", "0");
  EXPECT_EQ(Step(), Did{"collective"});
}

TEST_F(RankFaultsTest, SeveralMayBeArmedAndTheNewestOfAKindCounts) {
  Arm("exit", "3");
  Arm("exit");
  Arm("nan");
  EXPECT_EQ(Step(), (Did{"exit 1", "nan", "collective"}));
}

TEST_F(RankFaultsTest, WhatCannotBeUnderstoodArmsNothing) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"", ""},         {"kill", ""},     {"nan", "1"},    {"slow", ""},    {"slow", "-1"},
      {"slow", "fast"}, {"slow", "0.3x"}, {"slow", "nan"}, {"slow", "101"}, {"slow", "%"},
      {"exit", "256"},  {"exit", "-1"},   {"exit", "two"}, {"exit", "1 "}};
  for (const auto& [kind, argument] : kWrong) {
    EXPECT_EQ(faults_.Arm(kind, argument).code(), StatusCode::kInvalidArgument)
        << kind << " " << argument;
  }
  EXPECT_EQ(Step(), Did{"collective"});
}

TEST(RankFaultsPause, IsBeforeEachMicroBatch) {
  RecordingEffects effects;
  RankFaults faults(effects, PauseOf("0.02"));
  faults.AtData();
  faults.AtData();
  EXPECT_EQ(effects.did, (std::vector<std::string>{"sleep 20 ms", "sleep 20 ms"}));
  for (const char* none : {"", "0", "-1", "61", "nan", "0.02s", "a"})
    EXPECT_EQ(PauseOf(none), Duration::zero()) << none;
  EXPECT_EQ(PauseOf(nullptr), Duration::zero());
}

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

TEST(MayFillCgroup, OnlyWhereTheHostDoesNotFeelIt) {
  EXPECT_TRUE(MayFillCgroup({.limit = 4 * kGiB, .used = 3 * kGiB, .available_on_host = 2 * kGiB}));
  EXPECT_FALSE(MayFillCgroup({.limit = 4 * kGiB, .used = 1 * kGiB, .available_on_host = 5 * kGiB}));
  EXPECT_FALSE(MayFillCgroup({.used = 1 * kGiB, .available_on_host = 500 * kGiB}));
  EXPECT_FALSE(MayFillCgroup(
      {.limit = 2 * kGiB, .used = 1 * kGiB, .swaps = true, .available_on_host = 50 * kGiB}));
  EXPECT_TRUE(MayFillCgroup({.limit = 1 * kGiB, .used = 2 * kGiB, .available_on_host = 0}));
}

// In a process of its own; what wait says of it.
int Strike(const char* kind, const char* argument) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    RankFaults faults;
    if (!faults.Arm(kind, argument).ok()) ::_exit(100);
    try {
      faults.AtData();
    } catch (const std::exception& error) {
      ::_exit(FromException(error.what()).kind() == FailureKind::kOutOfMemory ? 101 : 102);
    }
    ::_exit(103);
  }
  int status = 0;
  return ::waitpid(pid, &status, 0) == pid ? status : -1;
}

TEST(ProcessFaultEffects, ExitEndsTheProcessWithItsCode) {
  const int status = Strike("exit", "42");
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 42) << status;
}

// Under a small cgroup limit the kernel ends it; else the allocation fails.
TEST(ProcessFaultEffects, OutOfMemoryEndsTheRankAndIsKnownForWhatItIs) {
  const int status = Strike("oom", "");
  EXPECT_TRUE((WIFEXITED(status) && WEXITSTATUS(status) == 101) ||
              (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
      << status;
}

// What a hung rank is: alive, asleep, and deaf to everything but a signal.
TEST(ProcessFaultEffects, AHungRankSleepsUntilItIsKilled) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    RankFaults faults;
    (void)faults.Arm("hang-collective", "");
    faults.BeforeLastCollective(Duration::zero());
    ::_exit(0);
  }
  const auto sleeps = [&] {
    const Result<ProcessInfo> process = ReadProcess(pid);
    return process.ok() && process->state == 'S';
  };
  EXPECT_TRUE(Eventually(sleeps));
  ::kill(pid, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

}  // namespace
}  // namespace muster
