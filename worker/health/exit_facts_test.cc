#include "worker/health/exit_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const JobId kJob{"00c0ffee00"};
constexpr std::int64_t kPid = 4711;
const OomKillEvent kKill{static_cast<pid_t>(kPid), "muster-trainer", false};

class ExitFactsTest : public testing::Test {
 protected:
  ExitFactsTest() { facts_.OnStarted({kJob, 2, 1, kPid}); }

  RankExited Completed(Generation generation, int signal = SIGKILL) const {
    RankExited exited{
        .job = kJob, .generation = generation, .rank = 1, .end = {.exit = {.signal = signal}}};
    facts_.Complete(&exited);
    return exited;
  }
  ExitFacts facts_{true};
};

TEST_F(ExitFactsTest, AKillForWantOfMemoryIsTheCause) {
  facts_.OnKernelEvent(kKill);
  const RankExited exited = Completed(2);
  EXPECT_TRUE(exited.end.out_of_memory);
  EXPECT_THAT(exited.facts, ElementsAre("kernel log: out of memory on the host, process 4711 "
                                        "(muster-trainer) was ended"));
}

TEST_F(ExitFactsTest, AnXidThatNamesTheProcessIsAFact) {
  facts_.OnKernelEvent(XidEvent{"0000:3b:00", 31, 4711, "page fault"});
  facts_.OnKernelEvent(XidEvent{"0000:3b:00", 31, 4712, "page fault"});
  const RankExited exited = Completed(2, SIGABRT);
  EXPECT_FALSE(exited.end.out_of_memory);
  EXPECT_THAT(exited.facts, ElementsAre("kernel log: Xid 31 on GPU 0000:3b:00: page fault"));
}

TEST_F(ExitFactsTest, OtherGenerationsProcessesAndSignalsAreLeftAlone) {
  facts_.OnKernelEvent(kKill);
  EXPECT_FALSE(Completed(1).end.out_of_memory);
  EXPECT_FALSE(Completed(2, SIGSEGV).end.out_of_memory);
  facts_.OnReleased(kJob);
  EXPECT_FALSE(Completed(2).end.out_of_memory);
}

TEST_F(ExitFactsTest, ANumberGivenAnewHasNoPast) {
  facts_.OnKernelEvent(kKill);
  facts_.OnStarted({kJob, 2, 2, kPid});
  RankExited exited{.job = kJob, .generation = 2, .rank = 2, .end = {.exit = {.signal = SIGKILL}}};
  facts_.Complete(&exited);
  EXPECT_FALSE(exited.end.out_of_memory);
}

TEST_F(ExitFactsTest, TellingAStartAgainForgetsNothing) {
  facts_.OnKernelEvent(kKill);
  facts_.OnStarted({kJob, 2, 1, kPid});
  EXPECT_TRUE(Completed(2).end.out_of_memory);
}

TEST_F(ExitFactsTest, WhatAHelloRestoresIsCompletedOnce) {
  facts_.OnKernelEvent(kKill);
  std::vector<HostedGeneration> hosted = {{.job = kJob, .generation = 2, .exited = {Completed(2)}}};
  facts_.Complete(&hosted);
  EXPECT_TRUE(hosted[0].exited[0].end.out_of_memory);
  EXPECT_EQ(hosted[0].exited[0].facts.size(), 1u);
}

TEST_F(ExitFactsTest, NumbersOfAnotherPidNamespaceMeanNothing) {
  ExitFacts facts(false);
  facts.OnStarted({kJob, 2, 1, kPid});
  facts.OnKernelEvent(kKill);
  RankExited exited{.job = kJob, .generation = 2, .rank = 1, .end = {.exit = {.signal = SIGKILL}}};
  facts.Complete(&exited);
  EXPECT_FALSE(exited.end.out_of_memory);
  EXPECT_THAT(exited.facts, IsEmpty());
}

}  // namespace
}  // namespace muster::worker
