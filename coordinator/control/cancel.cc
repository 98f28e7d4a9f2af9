// The end of a job: cancelled, out of time, or for good.

#include "common/base/text.h"
#include "coordinator/control/core.h"

namespace muster {

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
  if (job.record.stop != StopKind::kNone) {  // the first word counts
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
  Tell(job, {"stopping", Severity::kInfo, job.record.reason});
  if (!job.gang) {
    FinishJob(job, kind == StopKind::kCancel ? JobEvent::kCancel : JobEvent::kFail,
              job.record.reason);
  } else if (job.attempt().state == AttemptState::kAborting) {
    return;  // its end will be the job's
  } else if (kind == StopKind::kTimeLimit && job.spec.train &&
             job.attempt().state == AttemptState::kRunning) {
    StopGang(job, job.record.reason, now_.mono + options_.stop_patience);
    job.gang->stop_may_take_longer = true;
  } else {
    AbortStopped(job);
  }
}

void ControllerCore::AbortStopped(JobEntry& job) {
  AttemptRecord& attempt = job.attempt();
  attempt.cause_kind =
      job.record.stop == StopKind::kCancel ? CauseKind::kCancelled : CauseKind::kTimeLimit;
  attempt.cause = job.record.reason;
  BeginAbort(job, {job.record.reason, options_.cancel_grace});
}

void ControllerCore::FinishJob(JobEntry& job, JobEvent event, std::string reason) {
  job.gang.reset();
  job.not_before.reset();
  job.time_limit_at.reset();
  job.fault.reset();
  job.record.reason = std::move(reason);
  job.record.ended_unix_ms = now_.unix_ms;
  Move(job, event);
  live_.erase(job.record.id);
  reschedule_ = true;
  // Its release ends what is parked; until then the slots are taken.
  slots_.LeaveParkedBehind(job.record.id);
  job.grow_at.reset();
  scrubs_.Plan(job);
  const bool failed = job.record.state == JobState::kFailed;
  const std::string_view kind = Name(job.record.state);
  Tell(job, {kind.data(), failed ? Severity::kError : Severity::kInfo, job.record.reason});
  ReleaseNodes(job);
}

void ControllerCore::ReleaseNodes(JobEntry& job) {
  for (const NodeName& node : job.record.unreleased) Send(node, Release{job.record.id});
}

// A gang at work has all of its state on its own nodes: elsewhere a guardian and its snapshots
// would only take memory, for as long as the job runs.
void ControllerCore::ReleaseFormerNodes(JobEntry& job) {
  for (const NodeName& node : job.record.unreleased) {
    if (FindMember(job, node) == nullptr) Send(node, Release{job.record.id});
  }
}

}  // namespace muster
