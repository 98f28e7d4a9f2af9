#include "coordinator/domain/records.h"

#include <array>

namespace muster {

std::string SubmitKey(const std::string& owner, const std::string& key) {
  return owner.empty() || key.empty() ? key : owner + "/" + key;
}

std::string_view Name(CauseKind kind) {
  static constexpr std::array<std::string_view, kCauseKindCount> kNames = {
      "none",           "finished",        "cancelled",      "time_limit",
      "prepare_failed", "prepare_timeout", "launch_timeout", "form_timeout",
      "rank_killed",    "rank_exited",     "peer_lost",      "bad_input",
      "non_finite",     "out_of_memory",   "guardian_lost",  "node_lost",
      "bad_address",    "node_stopped",    "hung",           "device_fault",
      "drained",        "regrouped",       "slow_tier",      "suspended",
      "preempted"};
  const auto index = static_cast<std::size_t>(kind);
  return index < kNames.size() ? kNames[index] : "unknown";
}

bool IsFailure(CauseKind kind) {
  return kind != CauseKind::kNone && kind != CauseKind::kFinished &&
         kind != CauseKind::kCancelled && kind != CauseKind::kTimeLimit &&
         kind != CauseKind::kDrained && kind != CauseKind::kRegrouped &&
         kind != CauseKind::kSuspended && kind != CauseKind::kPreempted;
}

CauseKind CauseOf(StopKind stop) {
  switch (stop) {
    case StopKind::kNone: break;
    case StopKind::kCancel: return CauseKind::kCancelled;
    case StopKind::kTimeLimit: return CauseKind::kTimeLimit;
    case StopKind::kSuspend: return CauseKind::kSuspended;
    case StopKind::kPreempt: return CauseKind::kPreempted;
  }
  return CauseKind::kNone;
}

std::string_view Name(StopKind stop) {
  switch (stop) {
    case StopKind::kNone: return "none";
    case StopKind::kCancel: return "cancel";
    case StopKind::kTimeLimit: return "time_limit";
    case StopKind::kSuspend: return "suspend";
    case StopKind::kPreempt: return "preempt";
  }
  return "unknown";
}

std::string_view Name(Tier tier) {
  static constexpr std::array<std::string_view, kTierCount> kNames = {
      "launch", "in_place", "respawn", "spare", "shrink", "grow", "requeue"};
  const auto index = static_cast<std::size_t>(tier);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string_view Name(Severity severity) {
  switch (severity) {
    case Severity::kInfo: return "info";
    case Severity::kWarning: return "warning";
    case Severity::kError: return "error";
  }
  return "unknown";
}

std::string_view Name(DrainCause cause) {
  switch (cause) {
    case DrainCause::kNone: return "none";
    case DrainCause::kOperator: return "operator";
    case DrainCause::kNode: return "node";
    case DrainCause::kPilot: return "pilot";
  }
  return "unknown";
}

const std::string& NodeRecord::ShownReason() const {
  const bool draining = state == NodeState::kDraining || state == NodeState::kDrained;
  return draining && !drain_reason.empty() ? drain_reason : reason;
}

void NodeRecord::ClearDrain() {
  drain_reason.clear();
  drain_cause = DrainCause::kNone;
  drain_by_unix_ms = 0;
}

std::pair<Step, Generation> CheckpointAge(const CheckpointRecord& checkpoint) {
  return {checkpoint.step, checkpoint.generation};
}

CheckpointInfo InfoOf(const CheckpointRecord& checkpoint) {
  CheckpointInfo info{.step = checkpoint.step,
                      .generation = checkpoint.generation,
                      .directory = checkpoint.directory,
                      .world_size = checkpoint.world_size,
                      .shards = checkpoint.shards,
                      .committed_unix_ms = checkpoint.committed_unix_ms};
  if (checkpoint.evaluated) info.eval_loss = checkpoint.eval_loss;
  return info;
}

UsedMicros& UsedMicros::operator+=(const UsedMicros& other) {
  productive += other.productive;
  lost += other.lost;
  return *this;
}

}  // namespace muster
