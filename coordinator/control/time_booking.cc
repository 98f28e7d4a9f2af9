#include "coordinator/control/time_booking.h"

#include <algorithm>
#include <map>
#include <utility>

#include "coordinator/control/job_facts.h"

namespace muster::control {
namespace {

// A training job's usage is stored at this interval: what was booked since is lost with the
// coordinator, and the next one books the time itself.
constexpr Duration kStoreUsageEvery = std::chrono::seconds(15);

bool HasFinishedAStep(const JobEntry& job) {
  const AttemptRecord& attempt = job.attempts.back();
  return job.record.state == JobState::kRunning ||
         (attempt.resumed_step >= 0 && attempt.last_step > attempt.resumed_step);
}

TimeUse UseOfAttempt(const JobEntry& job) {
  const AttemptRecord& attempt = job.attempts.back();
  const int ranks = WorldSize(job);
  if (attempt.state == AttemptState::kAborting) {
    const bool is_last =
        attempt.cause_kind == CauseKind::kFinished || job.record.stop != StopKind::kNone;
    return {is_last ? TimeState::kIdle : TimeState::kRecovery, false, ranks};
  }
  if (job.spec.train && HasFinishedAStep(job)) return {TimeState::kStep, true, ranks};
  if (job.record.state == JobState::kRunning) return {TimeState::kStep, false, ranks};
  const bool again = job.record.state == JobState::kRecovering;
  return {again ? TimeState::kRecovery : TimeState::kIdle, false, ranks};
}

}  // namespace

TimeUse TimeUseOf(const JobEntry& job) {
  const JobRecord& record = job.record;
  if (job.over()) {
    const bool by_fault = record.state == JobState::kFailed && record.stop == StopKind::kNone;
    return {by_fault ? TimeState::kRecovery : TimeState::kIdle, false, 0};
  }
  const bool has_attempt =
      !job.attempts.empty() && job.attempts.back().state != AttemptState::kEnded;
  if (has_attempt) return UseOfAttempt(job);
  // It finds no gang: its wait is not part of its recovery.
  const bool recovers = record.state == JobState::kRecovering && !job.waited;
  if (recovers) return {TimeState::kRecovery, false, WorldSize(job)};
  return {TimeState::kQueue, false, job.spec.world_size()};
}

void AccrueTime(Transaction& tx, JobEntry& job) {
  const bool turned = job.ledger.Transition(TimeUseOf(job), job.record.step, tx.now.mono);
  tx.state.unused_may_differ |= turned;
  const bool due =
      job.ledger.doing().training && tx.now.mono - job.usage_stored_at >= kStoreUsageEvery;
  if (turned || due) tx.Mark(job);
  if (!tx.IsMarked(job)) return;
  job.record.usage = job.ledger.Books(tx.now.mono, tx.now.unix_ms);
  job.usage_stored_at = tx.now.mono;
}

// A rank that is booked to a job has a slot of the node that it is, or was last, placed on.
void BookUnused(Transaction& tx) {
  std::map<NodeName, int> ranks;
  for (const JobId& id : tx.state.live) {
    const JobEntry& job = std::as_const(tx).job(id);
    if (job.ledger.doing().state == TimeState::kQueue) continue;
    for (const NodeName& node : job.attempts.back().nodes) {
      ranks[node] += job.spec.resources.ranks_per_node;
    }
  }
  for (auto& [name, node] : tx.state.nodes) {
    NodeRecord& record = node.record;
    const int unused = IsUsable(record) ? std::max(0, record.slots - ranks[name]) : 0;
    if (!node.unused.Transition({TimeState::kIdle, false, unused}, 0, tx.now.mono)) continue;
    record.unused = node.unused.Books(tx.now.mono, tx.now.unix_ms);
    tx.Mark(node);
  }
  tx.state.unused_may_differ = false;
}

}  // namespace muster::control
