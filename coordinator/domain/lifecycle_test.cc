#include "coordinator/domain/lifecycle.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "coordinator/domain/records.h"

namespace muster {
namespace {

// Each lifecycle's allowed transitions, written out once more in the form a reader thinks of them;
// every pair that is missing here must be forbidden.
template <typename State, typename Event>
using Allowed = std::map<std::pair<State, Event>, State>;

template <typename State, typename Event>
void ExpectExactly(const Allowed<State, Event>& allowed, int states, int events) {
  for (int s = 1; s <= states; ++s) {
    for (int e = 0; e < events; ++e) {
      const auto state = static_cast<State>(s);
      const auto event = static_cast<Event>(e);
      const auto wanted = allowed.find({state, event});
      const std::optional<State> got = Apply(state, event);
      SCOPED_TRACE(std::string(Name(state)) + " x event " + std::to_string(e));
      if (wanted == allowed.end()) {
        EXPECT_FALSE(got.has_value());
      } else {
        ASSERT_TRUE(got.has_value());
        EXPECT_EQ(Name(*got), Name(wanted->second));
      }
    }
  }
  EXPECT_FALSE(Apply(static_cast<State>(0), static_cast<Event>(0)).has_value());
  EXPECT_FALSE(Apply(static_cast<State>(1), static_cast<Event>(events)).has_value());
}

template <typename State, typename Event>
void Add(Allowed<State, Event>& allowed, Event event, State to, std::initializer_list<State> from) {
  for (State state : from) allowed[{state, event}] = to;
}

TEST(LifecycleTest, EveryJobStateAndEvent) {
  using S = JobState;
  using E = JobEvent;
  Allowed<S, E> allowed;
  Add(allowed, E::kPlaced, S::kStarting, {S::kQueued});
  Add(allowed, E::kPlaced, S::kRecovering, {S::kRecovering});
  Add(allowed, E::kRunning, S::kRunning, {S::kStarting, S::kRunning, S::kRecovering});
  Add(allowed, E::kFault, S::kRecovering, {S::kStarting, S::kRunning, S::kRecovering});
  Add(allowed, E::kStop, S::kStopping,
      {S::kQueued, S::kStarting, S::kRunning, S::kRecovering, S::kStopping, S::kSuspended});
  Add(allowed, E::kSuspend, S::kSuspended, {S::kQueued, S::kStopping});
  Add(allowed, E::kResume, S::kQueued, {S::kSuspended});
  Add(allowed, E::kRequeue, S::kQueued, {S::kStopping});
  Add(allowed, E::kSucceed, S::kSucceeded,
      {S::kStarting, S::kRunning, S::kRecovering, S::kStopping});
  Add(allowed, E::kFail, S::kFailed,
      {S::kQueued, S::kStarting, S::kRunning, S::kRecovering, S::kStopping, S::kSuspended});
  Add(allowed, E::kCancel, S::kCancelled, {S::kStopping});
  ExpectExactly(allowed, kJobStateCount, kJobEventCount);
}

TEST(LifecycleTest, EveryAttemptStateAndEvent) {
  using S = AttemptState;
  using E = AttemptEvent;
  Allowed<S, E> allowed;
  Add(allowed, E::kReserved, S::kPreparing, {S::kReserving});
  Add(allowed, E::kPrepared, S::kLaunching, {S::kPreparing});
  Add(allowed, E::kStarted, S::kRunning, {S::kLaunching});
  Add(allowed, E::kAbort, S::kAborting,
      {S::kReserving, S::kPreparing, S::kLaunching, S::kRunning, S::kAborting});
  Add(allowed, E::kQuiesced, S::kEnded, {S::kAborting});
  ExpectExactly(allowed, kAttemptStateCount, kAttemptEventCount);
}

TEST(LifecycleTest, EveryNodeStateAndEvent) {
  using S = NodeState;
  using E = NodeEvent;
  Allowed<S, E> allowed;
  Add(allowed, E::kHello, S::kReady, {S::kJoining, S::kReady, S::kSuspect, S::kLost});
  Add(allowed, E::kDisconnect, S::kSuspect, {S::kJoining, S::kReady, S::kSuspect});
  Add(allowed, E::kLeaseExpired, S::kLost, {S::kJoining, S::kSuspect, S::kLost, S::kDraining});
  Add(allowed, E::kDrain, S::kDraining, {S::kJoining, S::kReady, S::kSuspect, S::kDraining});
  Add(allowed, E::kEmptied, S::kDrained, {S::kDraining, S::kDrained});
  Add(allowed, E::kUndrain, S::kReady, {S::kDraining, S::kDrained, S::kQuarantined});
  for (int s = 1; s <= kNodeStateCount; ++s) {
    allowed[{static_cast<S>(s), E::kQuarantine}] = S::kQuarantined;
  }
  Add(allowed, E::kDisconnect, S::kLost, {S::kLost});
  for (E event : {E::kHello, E::kDisconnect}) Add(allowed, event, S::kDraining, {S::kDraining});
  for (E event : {E::kHello, E::kDisconnect, E::kLeaseExpired, E::kDrain}) {
    Add(allowed, event, S::kDrained, {S::kDrained});
  }
  Add(allowed, E::kDrain, S::kLost, {S::kLost});
  for (E event : {E::kHello, E::kDisconnect, E::kLeaseExpired}) {
    Add(allowed, event, S::kQuarantined, {S::kQuarantined});
  }
  ExpectExactly(allowed, kNodeStateCount, kNodeEventCount);
}

TEST(LifecycleTest, EveryRankStateAndEvent) {
  using S = RankState;
  using E = RankEvent;
  Allowed<S, E> allowed;
  Add(allowed, E::kStarted, S::kRunning, {S::kPrepared, S::kRunning});
  Add(allowed, E::kStarted, S::kStopping, {S::kStopping});
  Add(allowed, E::kStop, S::kPrepared, {S::kPrepared});
  Add(allowed, E::kStop, S::kStopping, {S::kRunning, S::kStopping});
  Add(allowed, E::kExited, S::kExited,
      {S::kPrepared, S::kRunning, S::kStopping, S::kUnkillable, S::kParked});
  Add(allowed, E::kKept, S::kParked, {S::kStopping, S::kParked});
  Add(allowed, E::kStuck, S::kUnkillable,
      {S::kPrepared, S::kRunning, S::kStopping, S::kUnkillable});
  ExpectExactly(allowed, kRankStateCount, kRankEventCount);
}

TEST(LifecycleTest, EveryCheckpointStateAndEvent) {
  using S = CheckpointState;
  using E = CheckpointEvent;
  Allowed<S, E> allowed;
  Add(allowed, E::kShard, S::kWriting, {S::kWriting});
  Add(allowed, E::kAllShards, S::kComplete, {S::kWriting});
  Add(allowed, E::kCommit, S::kCommitted, {S::kComplete});
  Add(allowed, E::kPrune, S::kPruning, {S::kWriting, S::kComplete, S::kCommitted, S::kPruning});
  ExpectExactly(allowed, kCheckpointStateCount, kCheckpointEventCount);
}

TEST(LifecycleTest, TerminalJobStatesForbidEveryEvent) {
  for (JobState state : {JobState::kSucceeded, JobState::kFailed, JobState::kCancelled}) {
    EXPECT_TRUE(IsTerminal(state));
    for (int e = 0; e < kJobEventCount; ++e) {
      EXPECT_FALSE(Apply(state, static_cast<JobEvent>(e)).has_value()) << Name(state) << e;
    }
  }
  EXPECT_FALSE(IsTerminal(JobState::kStopping));
  EXPECT_FALSE(IsTerminal(JobState::kSuspended));
}

TEST(LifecycleTest, NamesAreDistinct) {
  std::set<std::string_view> names;
  for (int i = 0; i < kCauseKindCount; ++i) names.insert(Name(static_cast<CauseKind>(i)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kCauseKindCount));
  EXPECT_EQ(names.count("unknown"), 0u);
  names.clear();
  for (int s = 1; s <= kJobStateCount; ++s) names.insert(Name(static_cast<JobState>(s)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kJobStateCount));
}

template <typename Event>
void ExpectDistinctNames(int events) {
  std::set<std::string_view> names;
  for (int e = 0; e < events; ++e) names.insert(Name(static_cast<Event>(e)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(events));
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(LifecycleTest, EveryEventHasANameOfItsOwn) {
  ExpectDistinctNames<JobEvent>(kJobEventCount);
  ExpectDistinctNames<AttemptEvent>(kAttemptEventCount);
  ExpectDistinctNames<NodeEvent>(kNodeEventCount);
  ExpectDistinctNames<RankEvent>(kRankEventCount);
  ExpectDistinctNames<CheckpointEvent>(kCheckpointEventCount);
}

TEST(LifecycleDeathTest, AForbiddenEventEndsTheProcessAndNamesAllThree) {
  EXPECT_EQ(ApplyOrDie(RankState::kRunning, RankEvent::kExited, "rank 3"), RankState::kExited);
  EXPECT_DEATH(ApplyOrDie(RankState::kExited, RankEvent::kKept, "rank 3 of job 7f3a9c1e2b"),
               "rank 3 of job 7f3a9c1e2b is exited and cannot take event kept");
}

}  // namespace
}  // namespace muster
