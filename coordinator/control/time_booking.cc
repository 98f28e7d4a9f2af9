#include "coordinator/control/time_booking.h"

#include <algorithm>
#include <utility>

#include "coordinator/control/job_facts.h"
#include "coordinator/control/queue_days.h"

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

void AddRanks(Transaction& tx, const JobEntry& job, Generation generation, int ranks_per_node) {
  const auto attempt = std::ranges::find(job.attempts, generation, &AttemptRecord::generation);
  if (attempt == job.attempts.end()) return;
  for (const NodeName& name : attempt->nodes) {
    const auto node = tx.state.nodes.find(name);
    if (node == tx.state.nodes.end()) continue;
    node->second.ranks += ranks_per_node;
    tx.state.unused_may_differ.insert(name);
  }
}

// A rank that is booked to a job has a slot of the node that it is, or was last, placed on.
void BookRanks(Transaction& tx, JobEntry& job) {
  const Generation booked = BookedAttempt(job);
  if (job.booked == booked) return;
  AddRanks(tx, job, job.booked, -job.spec.resources.ranks_per_node);
  AddRanks(tx, job, booked, job.spec.resources.ranks_per_node);
  job.booked = booked;
}

}  // namespace

Generation BookedAttempt(const JobEntry& job) {
  const bool waits =
      job.over() || job.attempts.empty() || job.ledger.doing().state == TimeState::kQueue;
  return waits ? 0 : job.attempts.back().generation;
}

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
  BookRanks(tx, job);
  const bool due =
      job.ledger.doing().training && tx.now.mono - job.usage_stored_at >= kStoreUsageEvery;
  if (turned || due) tx.Mark(job);
  if (!tx.IsMarked(job)) return;
  const GoodputUsage before =
      std::exchange(job.record.usage, job.ledger.Usage(tx.now.mono, tx.now.unix_ms));
  BookDays(tx, job, before);
  job.usage_stored_at = tx.now.mono;
}

void BookUnused(Transaction& tx) {
  for (const NodeName& name : std::exchange(tx.state.unused_may_differ, {})) {
    NodeEntry& node = tx.state.nodes.at(name);
    NodeRecord& record = node.record;
    const int unused = IsUsable(record) ? std::max(0, record.slots - node.ranks) : 0;
    if (!node.unused.Transition({TimeState::kIdle, false, unused}, 0, tx.now.mono)) continue;
    record.unused = node.unused.Usage(tx.now.mono, tx.now.unix_ms);
    tx.Mark(node);
  }
}

}  // namespace muster::control
