#include "coordinator/control/stopping.h"

#include <algorithm>
#include <utility>

#include "coordinator/control/attempt_end.h"
#include "coordinator/control/gang_orders.h"
#include "coordinator/control/job_end.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/words.h"

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
    if (rank.phase == TrainPhase::kCheckpoint || rank.phase == TrainPhase::kExporting)
      saved += rank.stores;
  }
  for (const auto& [directory, checkpoint] : job.gang->writing) saved += checkpoint.shards.size();
  return saved;
}

}  // namespace

void ShortenStop(GangStop& stop, TimePoint deadline) {
  stop.deadline = std::min(stop.deadline.value_or(deadline), deadline);
  stop.may_take_longer = false;
}

void StopGang(Transaction& tx, JobEntry& job, const std::string& reason,
              std::optional<TimePoint> deadline) {
  std::optional<GangStop>& stop = In<Running>(*job.gang)->stop;
  const bool is_new = !stop;
  if (is_new) stop = GangStop{.reason = reason};
  stop->saved = Saved(job);
  if (deadline) ShortenStop(*stop, *deadline);
  if (!is_new) return;
  // That it is preempted is an event with all of it.
  if (job.record.stop != StopKind::kPreempt)
    tx.RecordEvent(job, {"stopping_gang", Severity::kInfo, reason + "; " + kStopsAndSaves});
  for (const GangNode& member : job.gang->nodes) SendStop(tx, job, member);
}

void GangStopped(Transaction& tx, JobEntry& job, const std::string& reason) {
  AttemptRecord& attempt = job.attempt();
  // Its last step was done by then: it was not cut short. A command reports no steps, but one that
  // ended well before the order to stop had finished.
  const bool done = job.spec.train ? job.gang->finished : NoneAskedToStop(attempt);
  if (done && AllExitedWell(attempt)) {
    attempt.cause_kind = CauseKind::kFinished;
    attempt.cause = "every rank has finished";
    return BeginAbort(tx, job, {attempt.cause, kCancelGrace});
  }
  EndOnPurpose(tx, job, CauseKind::kDrained, reason);
}

bool ExitedByStop(Transaction& tx, JobEntry& job, const ProcessExit& exit) {
  const GangStop* stop = StopOf(*job.gang);
  if (stop == nullptr) return false;
  // A command has no better way to end than by the signal.
  const bool expected = exit.ok() || !job.spec.train || job.record.stop != StopKind::kNone;
  if (!expected) return false;
  if (!AllExited(job.attempt())) return true;
  GangStopped(tx, job, std::string(stop->reason));
  return true;
}

void StopExpired(Transaction& tx, JobEntry& job) {
  GangStop& stop = *In<Running>(*job.gang)->stop;
  stop.deadline.reset();
  const std::uint64_t saved = Saved(job);
  const bool moved = std::exchange(stop.saved, saved) != saved;
  if (stop.may_take_longer && moved) {
    stop.deadline = tx.now.mono + kStopGrace;
    return;
  }
  if (SetsAside(job.record.stop)) {
    job.record.reason += "; it had not stopped in time";
    tx.Mark(job);
  }
  GangStopped(tx, job, stop.reason + "; it had not stopped in time");
}

void StopJob(Transaction& tx, JobEntry& job, StopKind kind, std::string reason) {
  const bool outranked = (job.record.stop == StopKind::kSuspend && kind == StopKind::kCancel) ||
                         job.record.stop == StopKind::kPreempt;
  if (job.record.stop != StopKind::kNone && !outranked) {  // the first request counts
    // But a user need not wait for the state of a job that is over its limit.
    const bool saving = job.gang && job.attempt().state != AttemptState::kAborting;
    if (kind == StopKind::kCancel && saving) AbortStopped(tx, job);
    return;
  }
  job.record.stop = kind;
  job.record.reason = std::move(reason);
  job.not_before.reset();
  job.begin_at.reset();
  DropPromise(tx.state, job);
  job.wait.reset();
  job.time_limit_at.reset();
  tx.Move(job, JobEvent::kStop);
  if (kind != StopKind::kPreempt)
    tx.RecordEvent(job, {"stopping", Severity::kInfo, job.record.reason});
  if (!job.gang) return EndStopped(tx, job);
  const AttemptState attempt = job.attempt().state;
  // The gang's end will be the job's end, which may have waited only for what a cancel does not
  // wait for.
  if (attempt == AttemptState::kAborting) return MaybeEndAttempt(tx, job);
  const bool saves = SetsAside(kind) || (kind == StopKind::kTimeLimit && job.spec.train);
  if (!saves || attempt != AttemptState::kRunning) return AbortStopped(tx, job);
  StopGang(tx, job, job.record.reason, StopDeadline(job, tx.now, tx.now.mono + kStopGrace));
  In<Running>(*job.gang)->stop->may_take_longer = job.record.stop_by_unix_ms == 0;
}

void StopIfOutOfTime(Transaction& tx, JobEntry& job) {
  if (job.over() || !tx.Expired(job.time_limit_at)) return;
  job.time_limit_at.reset();
  StopJob(
      tx, job, StopKind::kTimeLimit,
      "its time limit of " + SecondsText(double(job.record.time_limit_seconds)) + " is reached");
}

}  // namespace muster::control
