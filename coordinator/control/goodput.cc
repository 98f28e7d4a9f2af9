// What jobs and slots are used for, told to their ledgers after every event.

#include <algorithm>
#include <map>

#include "coordinator/control/core.h"

namespace muster {
namespace {

// Of a training job's books: what has been booked since is lost with the coordinator, and the time
// itself is booked by the next one.
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
  // It finds no gang: what it waits for is no part of its recovery.
  const bool recovers = record.state == JobState::kRecovering && !job.waited;
  if (recovers) return {TimeState::kRecovery, false, WorldSize(job)};
  return {TimeState::kQueue, false, job.spec.world_size()};
}

void ControllerCore::AccrueTime(JobEntry& job) {
  const bool turned = job.ledger.Transition(TimeUseOf(job), job.record.step, now_.mono);
  unused_may_differ_ |= turned;
  const bool due =
      job.ledger.doing().training && now_.mono - job.usage_stored_at >= kStoreUsageEvery;
  if (turned || due) Mark(job);
  if (!marked_jobs_.contains(job.record.id)) return;
  job.record.usage = job.ledger.Books(now_.mono, now_.unix_ms);
  job.usage_stored_at = now_.mono;
}

// A rank that is booked to a job has a slot of the node that it is, or was last, placed on.
void ControllerCore::BookUnused() {
  std::map<NodeName, int> ranks;
  for (const JobId& id : live_) {
    const JobEntry& job = jobs_.at(id);
    if (job.ledger.doing().state == TimeState::kQueue) continue;
    for (const NodeName& node : job.attempts.back().nodes) {
      ranks[node] += job.spec.resources.ranks_per_node;
    }
  }
  for (auto& [name, node] : nodes_) {
    NodeRecord& record = node.record;
    const int unused = IsUsable(record) ? std::max(0, record.slots - ranks[name]) : 0;
    if (!node.unused.Transition({TimeState::kIdle, false, unused}, 0, now_.mono)) continue;
    record.unused = node.unused.Books(now_.mono, now_.unix_ms);
    Mark(node);
  }
  unused_may_differ_ = false;
}

Goodput ControllerCore::ClusterGoodput(TimePoint now, bool stored) const {
  Goodput sum;
  for (const auto& [id, job] : jobs_) {
    sum += stored ? job.ledger.StoredAt(job.record.usage, now) : job.ledger.At(now);
  }
  for (const auto& [name, node] : nodes_) sum += node.unused.At(now);
  return sum;
}

}  // namespace muster
