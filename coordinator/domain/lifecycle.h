// The five lifecycles of the coordinator: closed enums and one pure transition function each.
//
// Apply(state, event) is the next state, or empty if the table forbids the event. A caller that
// cannot continue without a next state uses ApplyOrDie. Terminal states forbid every event.
// docs/job-lifecycle.md draws the tables; lifecycle_test.cc tests every state and event.
//
// Pure values and functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/check.h"

namespace muster {

// Numeric values of JobState, NodeState and RankState equal those of muster.v1 (common.proto).

enum class JobState {
  kQueued = 1,
  kStarting,    // its first gang is placed, prepared or launched
  kRunning,     // train: a step is finished; command: every rank is up
  kRecovering,  // an attempt failed; from the fault until the next one runs
  kStopping,    // cancelled, out of time or to be set aside; its processes are being ended
  kSuspended,   // set aside: nothing of it runs until it is resumed
  kSucceeded,
  kFailed,
  kCancelled,
};
inline constexpr int kJobStateCount = 9;

enum class JobEvent {
  kPlaced,  // a gang was reserved for it
  kRunning,
  kFault,    // its attempt failed, another one will be made
  kStop,     // by a user or by its time limit
  kSuspend,  // nothing of it runs any more; it may be resumed
  kResume,   // by a user
  kRequeue,  // nothing of it runs any more; it waits again
  kSucceed,
  kFail,
  kCancel,  // stopped for good
};
inline constexpr int kJobEventCount = 10;

enum class AttemptState { kReserving = 1, kPreparing, kLaunching, kRunning, kAborting, kEnded };
inline constexpr int kAttemptStateCount = 6;

enum class AttemptEvent {
  kReserved,  // its generation and nodes are decided
  kPrepared,  // every node is prepared
  kStarted,   // every rank has a process
  kAbort,     // end it, for any reason
  kQuiesced,  // no process of it is left
};
inline constexpr int kAttemptEventCount = 5;

enum class NodeState {
  kJoining = 1,
  kReady,
  kSuspect,  // its stream broke; its lease runs
  kLost,     // the lease expired
  kDraining,
  kDrained,
  kQuarantined,
};
inline constexpr int kNodeStateCount = 7;

enum class NodeEvent {
  kHello,
  kDisconnect,
  kLeaseExpired,
  kDrain,
  kEmptied,  // nothing runs on a draining node any more
  kUndrain,
  kQuarantine,
};
inline constexpr int kNodeEventCount = 7;

enum class RankState {
  kPrepared = 1,  // and for good if its attempt ends before it starts
  kRunning,
  kStopping,
  kExited,
  kUnkillable,
  kParked,  // out of the generation; its process waits for the next
};
inline constexpr int kRankStateCount = 6;

enum class RankEvent {
  kStarted,
  kStop,
  kExited,
  kStuck,  // survived SIGKILL
  kKept,   // its node has quiesced and its process is parked there
};
inline constexpr int kRankEventCount = 5;

enum class CheckpointState {
  kWriting = 1,  // some shards are reported
  kComplete,     // all shards are
  kCommitted,    // recorded in the store: exists
  kPruning,      // to be removed from disk; not resumed from
};
inline constexpr int kCheckpointStateCount = 4;

enum class CheckpointEvent {
  kShard,
  kAllShards,
  kCommit,
  kPrune,
};
inline constexpr int kCheckpointEventCount = 4;

std::optional<JobState> Apply(JobState state, JobEvent event);
std::optional<AttemptState> Apply(AttemptState state, AttemptEvent event);
std::optional<NodeState> Apply(NodeState state, NodeEvent event);
std::optional<RankState> Apply(RankState state, RankEvent event);
std::optional<CheckpointState> Apply(CheckpointState state, CheckpointEvent event);

// Succeeded, failed or cancelled.
bool IsTerminal(JobState state);

// Lower-case words: "running", "recovering", ...
std::string_view Name(JobState state);
std::string_view Name(AttemptState state);
std::string_view Name(NodeState state);
std::string_view Name(RankState state);
std::string_view Name(CheckpointState state);

std::string_view Name(JobEvent event);
std::string_view Name(AttemptEvent event);
std::string_view Name(NodeEvent event);
std::string_view Name(RankEvent event);
std::string_view Name(CheckpointEvent event);

// The next state. A pair that the table forbids is a bug: it ends the process with a message that
// names `id` ("rank 3 of job 7f3a9c1e2b"), state and event.
template <typename State, typename Event>
State ApplyOrDie(State state, Event event, const std::string& id) {
  const std::optional<State> next = Apply(state, event);
  MUSTER_CHECK(next.has_value(), id + " is " + std::string(Name(state)) +
                                     " and cannot take event " + std::string(Name(event)));
  return *next;
}

}  // namespace muster
