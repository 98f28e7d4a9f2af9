#include "coordinator/control/stopping.h"

#include <algorithm>
#include <utility>

#include "coordinator/control/attempt_end.h"
#include "coordinator/control/gang_orders.h"
#include "coordinator/control/job_end.h"
#include "coordinator/control/job_facts.h"

namespace muster::control {
namespace {

bool AllExited(const AttemptRecord& attempt) {
  return std::all_of(attempt.ranks.begin(), attempt.ranks.end(),
                     [](const RankRecord& rank) { return rank.state == RankState::kExited; });
}

// Rises while ranks write a checkpoint or the trained model.
std::uint64_t Saved(const JobEntry& job) {
  std::uint64_t saved = 0;
  for (const RankProgress& rank : job.progress) {
    if (rank.phase == "checkpoint" || rank.phase == "exporting") saved += rank.stores;
  }
  for (const auto& [directory, checkpoint] : job.gang->writing) saved += checkpoint.shards.size();
  return saved;
}

}  // namespace

void StopGang(Transaction& tx, JobEntry& job, const std::string& reason,
              std::optional<TimePoint> deadline) {
  Gang& gang = *job.gang;
  gang.saved_at_stop = Saved(job);
  if (deadline) gang.stop_may_take_longer = false;
  if (deadline) gang.stop_deadline = std::min(gang.stop_deadline.value_or(*deadline), *deadline);
  if (std::exchange(gang.stopping, true)) return;
  gang.abort_reason = reason;
  tx.RecordEvent(job, {"stopping_gang", Severity::kInfo,
                       reason + "; it stops at a step boundary and saves its state"});
  for (const GangNode& member : gang.nodes) SendStop(tx, job, member);
}

void GangStopped(Transaction& tx, JobEntry& job, const std::string& reason) {
  AttemptRecord& attempt = job.attempt();
  // Its last step was done by then: it was not cut short. A command reports no steps, but one that
  // ended well before the order to stop had finished.
  const bool done = job.spec.train ? job.gang->finished : NoneAskedToStop(attempt);
  if (done && AllExitedWell(attempt)) {
    attempt.cause_kind = CauseKind::kFinished;
    attempt.cause = "every rank has finished";
    return BeginAbort(tx, job, {attempt.cause, tx.options.cancel_grace});
  }
  EndOnPurpose(tx, job, CauseKind::kDrained, reason);
}

// True: the stop caused the exit, and all that follows from it is done.
bool ExitedByStop(Transaction& tx, JobEntry& job, const ProcessExit& exit) {
  const Gang& gang = *job.gang;
  if (!gang.stopping || job.attempt().state == AttemptState::kAborting) return false;
  // A command has no better way to end than by the signal.
  const bool expected = exit.ok() || !job.spec.train || job.record.stop != StopKind::kNone;
  if (!expected) return false;
  if (!AllExited(job.attempt())) return true;
  GangStopped(tx, job, gang.abort_reason);
  return true;
}

void StopExpired(Transaction& tx, JobEntry& job) {
  Gang& gang = *job.gang;
  gang.stop_deadline.reset();
  if (job.attempt().state == AttemptState::kAborting) return MaybeEndAttempt(tx, job);
  const std::uint64_t saved = Saved(job);
  const bool moved = std::exchange(gang.saved_at_stop, saved) != saved;
  if (gang.stop_may_take_longer && moved) {
    gang.stop_deadline = tx.now.mono + tx.options.stop_grace;
    return;
  }
  if (job.record.stop == StopKind::kSuspend) {
    job.record.reason += "; it had not stopped in time";
    tx.Mark(job);
  }
  GangStopped(tx, job, job.gang->abort_reason + "; it had not stopped in time");
}

void StopJob(Transaction& tx, JobEntry& job, StopKind kind, std::string reason) {
  const bool outranked = job.record.stop == StopKind::kSuspend && kind == StopKind::kCancel;
  if (job.record.stop != StopKind::kNone && !outranked) {  // the first request counts
    // But a user need not wait for the state of a job that is over its limit.
    const bool saving = job.gang && job.attempt().state != AttemptState::kAborting;
    if (kind == StopKind::kCancel && saving) AbortStopped(tx, job);
    return;
  }
  job.record.stop = kind;
  job.record.reason = std::move(reason);
  job.not_before.reset();
  job.time_limit_at.reset();
  tx.Move(job, JobEvent::kStop);
  tx.RecordEvent(job, {"stopping", Severity::kInfo, job.record.reason});
  if (!job.gang) return EndStopped(tx, job);
  const AttemptState attempt = job.attempt().state;
  // The gang's end will be the job's end, which may have waited only for what a cancel does not
  // wait for.
  if (attempt == AttemptState::kAborting) return MaybeEndAttempt(tx, job);
  const bool saves = kind == StopKind::kSuspend || (kind == StopKind::kTimeLimit && job.spec.train);
  if (!saves || attempt != AttemptState::kRunning) return AbortStopped(tx, job);
  StopGang(tx, job, job.record.reason,
           StopDeadline(job, tx.now, tx.now.mono + tx.options.stop_grace));
  job.gang->stop_may_take_longer = job.record.stop_by_unix_ms == 0;
}

}  // namespace muster::control
