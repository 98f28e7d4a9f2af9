#include "coordinator/control/restart_policy.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

RestartInput Input(bool progressed, int before) {
  RestartInput input;
  input.progressed = progressed;
  input.attempts_without_progress = before;
  return input;
}

TEST(RestartPolicyTest, ProgressRefundsTheBudgetAndRestartsAtOnce) {
  const RestartDecision decision = DecideRestart(Input(true, 2));
  EXPECT_TRUE(decision.restart);
  EXPECT_EQ(decision.delay, Duration::zero());
  EXPECT_EQ(decision.attempts_without_progress, 0);
}

TEST(RestartPolicyTest, TheFirstFailureWithoutProgressIsRetriedAtOnce) {
  const RestartDecision decision = DecideRestart(Input(false, 0));
  EXPECT_TRUE(decision.restart);
  EXPECT_EQ(decision.delay, Duration::zero());
  EXPECT_EQ(decision.attempts_without_progress, 1);
}

TEST(RestartPolicyTest, RepeatedFailuresBackOffUpToALimit) {
  RestartInput input = Input(false, 1);
  input.max_without_progress = 100;
  EXPECT_EQ(DecideRestart(input).delay, milliseconds(500));
  input.attempts_without_progress = 2;
  EXPECT_EQ(DecideRestart(input).delay, seconds(1));
  input.attempts_without_progress = 90;
  EXPECT_EQ(DecideRestart(input).delay, seconds(10));
}

TEST(RestartPolicyTest, TheBudgetEnds) {
  const RestartDecision decision = DecideRestart(Input(false, 2));
  EXPECT_FALSE(decision.restart);
  EXPECT_EQ(decision.attempts_without_progress, 3);
  EXPECT_EQ(decision.why_not, "3 attempts in a row ended without progress");
}

TEST(RestartPolicyTest, ABudgetOfOneAllowsNoRestartWithoutProgress) {
  RestartInput input = Input(false, 0);
  input.max_without_progress = 1;
  EXPECT_FALSE(DecideRestart(input).restart);
  input.progressed = true;
  EXPECT_TRUE(DecideRestart(input).restart);
}

TEST(RestartPolicyTest, TakingTheNodesDownCostsNoBudget) {
  RestartInput input = Input(false, 2);
  input.charged = false;
  const RestartDecision decision = DecideRestart(input);
  EXPECT_TRUE(decision.restart);
  EXPECT_EQ(decision.delay, Duration::zero());
  EXPECT_EQ(decision.attempts_without_progress, 2);
  input.retryable = false;
  EXPECT_FALSE(DecideRestart(input).restart);
}

TEST(RestartPolicyTest, WhatNoAttemptCanMendEndsTheJobDespiteProgress) {
  RestartInput input = Input(true, 0);
  input.retryable = false;
  EXPECT_FALSE(DecideRestart(input).restart);
}

}  // namespace
}  // namespace muster
