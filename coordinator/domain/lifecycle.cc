#include "coordinator/domain/lifecycle.h"

#include <array>
#include <cstddef>

namespace muster {
namespace {

// One row per state, one column per event, both in the order of their enums. X: forbidden.
template <typename State, std::size_t kStates, std::size_t kEvents>
using Table = std::array<std::array<std::optional<State>, kEvents>, kStates>;

template <typename State, typename Event, std::size_t kStates, std::size_t kEvents>
std::optional<State> LookUp(const Table<State, kStates, kEvents>& table, State state, Event event,
                            int first_state) {
  const auto row = static_cast<std::size_t>(static_cast<int>(state) - first_state);
  const auto column = static_cast<std::size_t>(event);
  if (row >= kStates || column >= kEvents) return std::nullopt;
  return table[row][column];
}

constexpr auto X = std::nullopt;

// clang-format off
constexpr Table<JobState, kJobStateCount, kJobEventCount> JobTable() {
  using enum JobState;
  return {{
    //                 placed       running   fault         stop       suspend     resume    requeue   succeed     fail      cancel
    /* queued      */ {{kStarting,   X,        X,           kStopping, kSuspended, X,        X,        X,          kFailed,  X}},
    /* starting    */ {{X,           kRunning, kRecovering, kStopping, X,          X,        X,        kSucceeded, kFailed,  X}},
    /* running     */ {{X,           kRunning, kRecovering, kStopping, X,          X,        X,        kSucceeded, kFailed,  X}},
    /* recovering  */ {{kRecovering, kRunning, kRecovering, kStopping, X,          X,        X,        kSucceeded, kFailed,  X}},
    /* stopping    */ {{X,           X,        X,           kStopping, kSuspended, X,        kQueued,  kSucceeded, kFailed,  kCancelled}},
    /* suspended   */ {{X,           X,        X,           kStopping, X,          kQueued,  X,        X,          kFailed,  X}},
    /* succeeded   */ {{X,           X,        X,           X,         X,          X,        X,        X,          X,        X}},
    /* failed      */ {{X,           X,        X,           X,         X,          X,        X,        X,          X,        X}},
    /* cancelled   */ {{X,           X,        X,           X,         X,          X,        X,        X,          X,        X}},
  }};
}

constexpr Table<AttemptState, kAttemptStateCount, kAttemptEventCount> AttemptTable() {
  using enum AttemptState;
  return {{
    //                 reserved    prepared    started   abort      quiesced
    /* reserving   */ {{kPreparing, X,          X,        kAborting, X}},
    /* preparing   */ {{X,          kLaunching, X,        kAborting, X}},
    /* launching   */ {{X,          X,          kRunning, kAborting, X}},
    /* running     */ {{X,          X,          X,        kAborting, X}},
    /* aborting    */ {{X,          X,          X,        kAborting, kEnded}},
    /* ended       */ {{X,          X,          X,        X,         X}},
  }};
}

constexpr Table<NodeState, kNodeStateCount, kNodeEventCount> NodeTable() {
  using enum NodeState;
  return {{
    //                 hello         disconnect    lease expired  drain         emptied   undrain  quarantine
    /* joining     */ {{kReady,       kSuspect,     kLost,         kDraining,    X,        X,       kQuarantined}},
    /* ready       */ {{kReady,       kSuspect,     X,             kDraining,    X,        X,       kQuarantined}},
    /* suspect     */ {{kReady,       kSuspect,     kLost,         kDraining,    X,        X,       kQuarantined}},
    /* lost        */ {{kReady,       kLost,        kLost,         kLost,        X,        X,       kQuarantined}},
    /* draining    */ {{kDraining,    kDraining,    kLost,         kDraining,    kDrained, kReady,  kQuarantined}},
    /* drained     */ {{kDrained,     kDrained,     kDrained,      kDrained,     kDrained, kReady,  kQuarantined}},
    /* quarantined */ {{kQuarantined, kQuarantined, kQuarantined,  X,            X,        kReady,  kQuarantined}},
  }};
}

constexpr Table<RankState, kRankStateCount, kRankEventCount> RankTable() {
  using enum RankState;
  return {{
    //                 started    stop       exited   stuck        kept
    /* prepared    */ {{kRunning,  kPrepared, kExited, kUnkillable, X}},
    /* running     */ {{kRunning,  kStopping, kExited, kUnkillable, X}},
    /* stopping    */ {{kStopping, kStopping, kExited, kUnkillable, kParked}},
    /* exited      */ {{X,         X,         X,       X,           X}},
    /* unkillable  */ {{X,         X,         kExited, kUnkillable, X}},
    /* parked      */ {{X,         X,         kExited, X,           kParked}},
  }};
}

constexpr Table<CheckpointState, kCheckpointStateCount, kCheckpointEventCount> CheckpointTable() {
  using enum CheckpointState;
  return {{
    //                 shard     all shards  commit      prune
    /* writing     */ {{kWriting, kComplete,  X,          kPruning}},
    /* complete    */ {{X,        X,          kCommitted, kPruning}},
    /* committed   */ {{X,        X,          X,          kPruning}},
    /* pruning     */ {{X,        X,          X,          kPruning}},
  }};
}
// clang-format on

}  // namespace

std::optional<JobState> Apply(JobState state, JobEvent event) {
  static constexpr auto kTable = JobTable();
  return LookUp(kTable, state, event, 1);
}

std::optional<AttemptState> Apply(AttemptState state, AttemptEvent event) {
  static constexpr auto kTable = AttemptTable();
  return LookUp(kTable, state, event, 1);
}

std::optional<NodeState> Apply(NodeState state, NodeEvent event) {
  static constexpr auto kTable = NodeTable();
  return LookUp(kTable, state, event, 1);
}

std::optional<RankState> Apply(RankState state, RankEvent event) {
  static constexpr auto kTable = RankTable();
  return LookUp(kTable, state, event, 1);
}

std::optional<CheckpointState> Apply(CheckpointState state, CheckpointEvent event) {
  static constexpr auto kTable = CheckpointTable();
  return LookUp(kTable, state, event, 1);
}

bool IsTerminal(JobState state) {
  return state == JobState::kSucceeded || state == JobState::kFailed ||
         state == JobState::kCancelled;
}

std::string_view Name(JobState state) {
  switch (state) {
    case JobState::kQueued: return "queued";
    case JobState::kStarting: return "starting";
    case JobState::kRunning: return "running";
    case JobState::kRecovering: return "recovering";
    case JobState::kStopping: return "stopping";
    case JobState::kSuspended: return "suspended";
    case JobState::kSucceeded: return "succeeded";
    case JobState::kFailed: return "failed";
    case JobState::kCancelled: return "cancelled";
  }
  return "unknown";
}

std::string_view Name(AttemptState state) {
  switch (state) {
    case AttemptState::kReserving: return "reserving";
    case AttemptState::kPreparing: return "preparing";
    case AttemptState::kLaunching: return "launching";
    case AttemptState::kRunning: return "running";
    case AttemptState::kAborting: return "aborting";
    case AttemptState::kEnded: return "ended";
  }
  return "unknown";
}

std::string_view Name(NodeState state) {
  switch (state) {
    case NodeState::kJoining: return "joining";
    case NodeState::kReady: return "ready";
    case NodeState::kSuspect: return "suspect";
    case NodeState::kLost: return "lost";
    case NodeState::kDraining: return "draining";
    case NodeState::kDrained: return "drained";
    case NodeState::kQuarantined: return "quarantined";
  }
  return "unknown";
}

std::string_view Name(RankState state) {
  switch (state) {
    case RankState::kPrepared: return "prepared";
    case RankState::kRunning: return "running";
    case RankState::kStopping: return "stopping";
    case RankState::kExited: return "exited";
    case RankState::kUnkillable: return "unkillable";
    case RankState::kParked: return "parked";
  }
  return "unknown";
}

std::string_view Name(CheckpointState state) {
  switch (state) {
    case CheckpointState::kWriting: return "writing";
    case CheckpointState::kComplete: return "complete";
    case CheckpointState::kCommitted: return "committed";
    case CheckpointState::kPruning: return "pruning";
  }
  return "unknown";
}

std::string_view Name(JobEvent event) {
  switch (event) {
    case JobEvent::kPlaced: return "placed";
    case JobEvent::kRunning: return "running";
    case JobEvent::kFault: return "fault";
    case JobEvent::kStop: return "stop";
    case JobEvent::kSuspend: return "suspend";
    case JobEvent::kResume: return "resume";
    case JobEvent::kRequeue: return "requeue";
    case JobEvent::kSucceed: return "succeed";
    case JobEvent::kFail: return "fail";
    case JobEvent::kCancel: return "cancel";
  }
  return "unknown";
}

std::string_view Name(AttemptEvent event) {
  switch (event) {
    case AttemptEvent::kReserved: return "reserved";
    case AttemptEvent::kPrepared: return "prepared";
    case AttemptEvent::kStarted: return "started";
    case AttemptEvent::kAbort: return "abort";
    case AttemptEvent::kQuiesced: return "quiesced";
  }
  return "unknown";
}

std::string_view Name(NodeEvent event) {
  switch (event) {
    case NodeEvent::kHello: return "hello";
    case NodeEvent::kDisconnect: return "disconnect";
    case NodeEvent::kLeaseExpired: return "lease expired";
    case NodeEvent::kDrain: return "drain";
    case NodeEvent::kEmptied: return "emptied";
    case NodeEvent::kUndrain: return "undrain";
    case NodeEvent::kQuarantine: return "quarantine";
  }
  return "unknown";
}

std::string_view Name(RankEvent event) {
  switch (event) {
    case RankEvent::kStarted: return "started";
    case RankEvent::kStop: return "stop";
    case RankEvent::kExited: return "exited";
    case RankEvent::kStuck: return "stuck";
    case RankEvent::kKept: return "kept";
  }
  return "unknown";
}

std::string_view Name(CheckpointEvent event) {
  switch (event) {
    case CheckpointEvent::kShard: return "shard";
    case CheckpointEvent::kAllShards: return "all shards";
    case CheckpointEvent::kCommit: return "commit";
    case CheckpointEvent::kPrune: return "prune";
  }
  return "unknown";
}

}  // namespace muster
