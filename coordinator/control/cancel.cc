// The end of a job: cancelled, out of time, for good, or for now.

#include "common/base/text.h"
#include "coordinator/control/core.h"

namespace muster {
namespace {

std::string StepsText(Step steps) {
  return std::to_string(steps) + (steps == 1 ? " step" : " steps");
}

// Where it will go on, and what it has lost.
std::string WhereSuspended(const JobEntry& job) {
  const JobRecord& record = job.record;
  if (job.attempts.empty()) return "it has not run yet";
  if (!job.spec.train) return "its command starts from the beginning";
  const Step lost = record.step - record.committed_step;
  if (record.committed_step == 0) {
    return record.step == 0 ? "it has finished no step yet"
                            : "no checkpoint was committed: " + StepsText(record.step) +
                                  " will have to be done again";
  }
  std::string text = "it will go on at step " + std::to_string(record.committed_step);
  if (lost > 0)
    text += "; " + StepsText(lost) + " after that checkpoint will have to be done again";
  return text;
}

}  // namespace

void ControllerCore::On(const CancelRequested& request) {
  Reply reply{request.request, {}, {}};
  Result<JobView> found = FindJob(request.job);
  if (!found.ok()) {
    reply.status = found.status();
  } else {
    JobEntry& job = jobs_.at(found->record->id);
    if (job.over() && job.record.state != JobState::kCancelled) {
      reply.status = FailedPrecondition(
          "job " + job.record.id.value + " (" + job.record.name + ") has already " +
          (job.record.state == JobState::kFailed ? "failed" : "succeeded") +
          "; there is nothing to cancel");
    } else {
      if (!job.over()) {
        StopJob(job, StopKind::kCancel,
                request.reason.empty() ? "cancelled by a user"
                                       : "cancelled: " + CutText(request.reason, kMaxReasonBytes));
      }
      reply.body = CancelAccepted{job.record.id, job.record.state};
    }
  }
  out_.replies.push_back(std::move(reply));
}

void ControllerCore::StopJob(JobEntry& job, StopKind kind, std::string reason) {
  const bool outranked = job.record.stop == StopKind::kSuspend && kind == StopKind::kCancel;
  if (job.record.stop != StopKind::kNone && !outranked) {  // the first word counts
    // But a user need not wait for the state of a job that is over its limit.
    const bool saving = job.gang && job.attempt().state != AttemptState::kAborting;
    if (kind == StopKind::kCancel && saving) AbortStopped(job);
    return;
  }
  job.record.stop = kind;
  job.record.reason = std::move(reason);
  job.not_before.reset();
  job.time_limit_at.reset();
  Move(job, JobEvent::kStop);
  RecordEvent(job, {"stopping", Severity::kInfo, job.record.reason});
  if (!job.gang) return EndStopped(job);
  const AttemptState attempt = job.attempt().state;
  // Its end will be the job's, and that may have waited only for what a cancel does not wait for.
  if (attempt == AttemptState::kAborting) return MaybeEndAttempt(job);
  const bool saves = kind == StopKind::kSuspend || (kind == StopKind::kTimeLimit && job.spec.train);
  if (!saves || attempt != AttemptState::kRunning) return AbortStopped(job);
  StopGang(job, job.record.reason, StopDeadline(job, now_, now_.mono + options_.stop_grace));
  job.gang->stop_may_take_longer = job.record.stop_by_unix_ms == 0;
}

void ControllerCore::AbortStopped(JobEntry& job) {
  AttemptRecord& attempt = job.attempt();
  attempt.cause_kind = CauseOf(job.record.stop);
  attempt.cause = job.record.reason;
  // Who had until now to save his state gets no more time; the machine may be gone any moment.
  const bool suspends = job.record.stop == StopKind::kSuspend;
  BeginAbort(job, {job.record.reason, suspends ? Duration::zero() : options_.cancel_grace});
}

void ControllerCore::EndStopped(JobEntry& job) {
  switch (job.record.stop) {
    case StopKind::kNone: return;
    case StopKind::kCancel: return FinishJob(job, JobEvent::kCancel, job.record.reason);
    case StopKind::kTimeLimit: return FinishJob(job, JobEvent::kFail, job.record.reason);
    case StopKind::kSuspend:
      return FinishJob(job, JobEvent::kSuspend, job.record.reason + "; " + WhereSuspended(job));
  }
}

void ControllerCore::FinishJob(JobEntry& job, JobEvent event, std::string reason) {
  job.gang.reset();
  job.not_before.reset();
  job.time_limit_at.reset();
  job.fault.reset();
  job.record.reason = std::move(reason);
  Move(job, event);
  if (job.over()) {
    job.record.ended_unix_ms = now_.unix_ms;
    live_.erase(job.record.id);
    out_.observations.push_back(RunEndedObserved{
        job.record.state,
        job.record.state == JobState::kFailed && job.record.stop == StopKind::kTimeLimit});
  } else {
    job.record.suspended_unix_ms = now_.unix_ms;
    job.record.stop = StopKind::kNone;
    job.record.stop_by_unix_ms = 0;
    job.kept = false;
    job.waited = true;
  }
  reschedule_ = true;
  // Its release ends what is parked; until then the slots are taken.
  slots_.OrphanParked(job.record.id);
  job.grow_at.reset();
  scrubs_.Plan(job);
  const bool failed = job.record.state == JobState::kFailed;
  const std::string_view kind = Name(job.record.state);
  RecordEvent(job, {kind.data(), failed ? Severity::kError : Severity::kInfo, job.record.reason});
  ReleaseNodes(job);
}

void ControllerCore::ReleaseNodes(JobEntry& job) {
  for (const NodeName& node : job.record.pending_release) Send(node, Release{job.record.id});
}

// A gang at work has all of its state on its own nodes: elsewhere a guardian and its snapshots
// would only take memory, for as long as the job runs.
void ControllerCore::ReleaseFormerNodes(JobEntry& job) {
  for (const NodeName& node : job.record.pending_release) {
    if (FindMember(job, node) == nullptr) Send(node, Release{job.record.id});
  }
}

}  // namespace muster
