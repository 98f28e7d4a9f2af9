#include "coordinator/control/reconcile.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muster {
namespace {

using A = ReconcileAction;

// The node belongs to live generation 5 and hosts `generation`.
ReconcileInput Hosting(AttemptState attempt, Generation generation) {
  ReconcileInput input;
  input.job_known = true;
  input.in_gang = true;
  input.generation = 5;
  input.attempt = attempt;
  input.hosted = true;
  input.hosted_generation = generation;
  return input;
}

TEST(ReconcileTest, GuardianOfAnUnknownOrFinishedJobIsReleased) {
  ReconcileInput input;
  input.hosted = true;
  EXPECT_EQ(Reconcile(input), A::kRelease);
  input.job_known = true;
  input.job_over = true;
  EXPECT_EQ(Reconcile(input), A::kRelease);
  input.hosted = false;
  EXPECT_EQ(Reconcile(input), A::kNothing);
}

TEST(ReconcileTest, ANodeOutsideTheGang) {
  ReconcileInput input = Hosting(AttemptState::kEnded, 4);
  input.in_gang = false;
  EXPECT_EQ(Reconcile(input), A::kAbortStale);
  input.quiesced = true;
  EXPECT_EQ(Reconcile(input), A::kNothing);
  input.hosted_generation = 6;  // the store has lost decisions
  EXPECT_EQ(Reconcile(input), A::kRelease);
  input.hosted = false;
  EXPECT_EQ(Reconcile(input), A::kNothing);
}

TEST(ReconcileTest, AGuardianAheadOfTheStoreIsReleased) {
  for (AttemptState state : {AttemptState::kPreparing, AttemptState::kLaunching,
                             AttemptState::kRunning, AttemptState::kAborting}) {
    ReconcileInput input = Hosting(state, 6);
    EXPECT_EQ(Reconcile(input), A::kReleaseAhead);
    input.spare = true;
    EXPECT_EQ(Reconcile(input), A::kReleaseAhead);
  }
}

TEST(ReconcileTest, ParkedProcesses) {
  ReconcileInput input = Hosting(AttemptState::kEnded, 5);
  input.in_gang = false;
  input.quiesced = true;
  input.kept = true;
  EXPECT_EQ(Reconcile(input), A::kAbortStale) << "the job goes on elsewhere";
  input.waiting = true;
  EXPECT_EQ(Reconcile(input), A::kHold);
  input.hosted_generation = 4;
  EXPECT_EQ(Reconcile(input), A::kAbortStale) << "nobody knows what they are";
  input.job_over = true;
  EXPECT_EQ(Reconcile(input), A::kRelease);

  input = Hosting(AttemptState::kAborting, 4);
  input.quiesced = true;
  EXPECT_EQ(Reconcile(input), A::kQuiesced);
  input.kept = true;
  EXPECT_EQ(Reconcile(input), A::kAbort) << "older ones are not this generation's proof";
  input.hosted_generation = input.generation;
  EXPECT_EQ(Reconcile(input), A::kQuiesced);
}

TEST(ReconcileTest, ASpareIsPreparedAndNeverMissed) {
  for (AttemptState state :
       {AttemptState::kPreparing, AttemptState::kLaunching, AttemptState::kRunning}) {
    ReconcileInput input = Hosting(state, 5);
    input.spare = true;
    EXPECT_EQ(Reconcile(input), A::kPrepare);
    input.prepared = true;
    EXPECT_EQ(Reconcile(input), A::kAdoptPrepared);
    input.quiesced = true;
    EXPECT_EQ(Reconcile(input), A::kPrepare);
    input.hosted = false;
    EXPECT_EQ(Reconcile(input), A::kPrepare);
  }
  ReconcileInput input = Hosting(AttemptState::kAborting, 5);
  input.spare = true;
  EXPECT_EQ(Reconcile(input), A::kAbort);
}

TEST(ReconcileTest, CurrentGenerationWhilePreparing) {
  ReconcileInput input = Hosting(AttemptState::kPreparing, 5);
  EXPECT_EQ(Reconcile(input), A::kPrepare);
  input.quiesced = true;  // of older generations
  EXPECT_EQ(Reconcile(input), A::kPrepare);
  input.prepared = true;
  EXPECT_EQ(Reconcile(input), A::kMissing) << "its guardian has ended";
  input.quiesced = false;
  EXPECT_EQ(Reconcile(input), A::kAdoptPrepared);
}

TEST(ReconcileTest, CurrentGenerationWhileLaunching) {
  ReconcileInput input = Hosting(AttemptState::kLaunching, 5);
  EXPECT_EQ(Reconcile(input), A::kPrepareAndLaunch) << "both went out together";
  input.prepared = true;
  EXPECT_EQ(Reconcile(input), A::kLaunch);
  input.quiesced = true;
  EXPECT_EQ(Reconcile(input), A::kMissing) << "its guardian has ended";
  input.launched = true;
  EXPECT_EQ(Reconcile(input), A::kAdopt);
}

TEST(ReconcileTest, CurrentGenerationWhileRunning) {
  ReconcileInput input = Hosting(AttemptState::kRunning, 5);
  input.prepared = true;
  EXPECT_EQ(Reconcile(input), A::kMissing);
  input.launched = true;
  EXPECT_EQ(Reconcile(input), A::kAdopt);
  input.quiesced = true;
  EXPECT_EQ(Reconcile(input), A::kAdopt);
}

TEST(ReconcileTest, CurrentGenerationWhileAborting) {
  ReconcileInput input = Hosting(AttemptState::kAborting, 5);
  EXPECT_EQ(Reconcile(input), A::kAbort);
  input.quiesced = true;
  EXPECT_EQ(Reconcile(input), A::kQuiesced);
}

TEST(ReconcileTest, OlderGenerationOrNoGuardianAtAll) {
  for (bool hosted : {true, false}) {
    SCOPED_TRACE(hosted);
    for (const auto& [state, action] : std::vector<std::pair<AttemptState, A>>{
             {AttemptState::kPreparing, A::kPrepare},
             {AttemptState::kLaunching, A::kMissing},
             {AttemptState::kRunning, A::kMissing},
             {AttemptState::kAborting, hosted ? A::kAbort : A::kQuiesced}}) {
      ReconcileInput input = Hosting(state, 4);
      input.hosted = hosted;
      EXPECT_EQ(Reconcile(input), action) << Name(state);
    }
  }
  ReconcileInput input = Hosting(AttemptState::kAborting, 4);
  input.quiesced = true;
  EXPECT_EQ(Reconcile(input), A::kQuiesced);
  input = Hosting(AttemptState::kLaunching, 4);
  input.kept = true;
  EXPECT_EQ(Reconcile(input), A::kPrepareAndLaunch) << "for the processes that wait there";
}

// Every combination has an action, and nothing is launched or adopted that is not of the live
// generation.
TEST(ReconcileTest, OnlyTheLiveGenerationIsEverLaunchedOrAdopted) {
  for (int bits = 0; bits < 128; ++bits) {
    for (int state = 1; state <= kAttemptStateCount; ++state) {
      for (Generation generation : {4, 5, 6}) {
        ReconcileInput input = Hosting(static_cast<AttemptState>(state), generation);
        input.job_known = bits & 1;
        input.job_over = bits & 2;
        input.in_gang = bits & 4;
        input.hosted = bits & 8;
        input.prepared = bits & 16;
        input.launched = bits & 32;
        input.quiesced = bits & 64;
        const A action = Reconcile(input);
        if (action == A::kLaunch || action == A::kAdopt || action == A::kAdoptPrepared) {
          EXPECT_TRUE(input.job_known && !input.job_over && input.in_gang && input.hosted);
          EXPECT_EQ(generation, 5);
        }
        if (action == A::kRelease || action == A::kAbortStale) {
          EXPECT_TRUE(input.hosted);
        }
      }
    }
  }
}

}  // namespace
}  // namespace muster
