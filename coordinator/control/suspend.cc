// Jobs that are set aside: saved, ended, and later brought back to where they were.

#include <algorithm>

#include "common/base/text.h"
#include "coordinator/control/core.h"

namespace muster {
namespace {

std::string NameOf(const JobEntry& job) {
  return "job " + job.record.id.value + " (" + job.record.name + ")";
}

// A job that is over, or on its way there, is neither suspended nor resumed.
Status CheckGoesOn(const JobEntry& job, const std::string& what) {
  if (job.over()) {
    const std::string end = job.record.state == JobState::kCancelled
                                ? "been cancelled"
                                : std::string(Name(job.record.state));
    return FailedPrecondition(NameOf(job) + " has already " + end + "; there is nothing to " +
                              what);
  }
  const StopKind stop = job.record.stop;
  if (stop == StopKind::kCancel || stop == StopKind::kTimeLimit) {
    return FailedPrecondition(NameOf(job) + " is being ended (" + job.record.reason +
                              "); it is too late to " + what + " it");
  }
  return OkStatus();
}

}  // namespace

void ControllerCore::On(const SuspendRequested& request) {
  Reply reply{request.request, {}, {}};
  const Result<JobView> found = FindJob(request.job);
  if (!found.ok()) {
    reply.status = found.status();
  } else if (!(request.by_seconds >= 0)) {
    reply.status = InvalidArgument("the time to save in cannot be negative");
  } else {
    JobEntry& job = jobs_.at(found->record->id);
    reply.status = CheckGoesOn(job, "suspend");
    if (reply.status.ok()) {
      Suspend(job, request);
      reply.body = SuspendAccepted{job.record.id, job.record.state};
    }
  }
  out_.replies.push_back(std::move(reply));
}

void ControllerCore::Suspend(JobEntry& job, const SuspendRequested& request) {
  JobRecord& record = job.record;
  if (record.state == JobState::kSuspended) return;
  const std::int64_t by =
      now_.unix_ms +
      std::max<std::int64_t>(1, static_cast<std::int64_t>(request.by_seconds * 1000));
  const bool sooner =
      request.by_seconds > 0 && (record.stop_by_unix_ms == 0 || by < record.stop_by_unix_ms);
  if (sooner) {
    record.stop_by_unix_ms = by;
    Mark(job);
  }
  if (record.stop == StopKind::kNone) {
    const std::string why = request.reason.empty() ? "asked for by a user" : request.reason;
    return StopJob(job, StopKind::kSuspend, "suspended: " + CutText(why, kMaxReasonBytes));
  }
  // It is on its way, and there is less time for that than was thought.
  if (!sooner || !job.gang) return;
  Gang& gang = *job.gang;
  if (!gang.stop_deadline && job.attempt().state == AttemptState::kAborting) return;
  const TimePoint deadline = now_.mono + FromSeconds(request.by_seconds);
  gang.stop_deadline = std::min(gang.stop_deadline.value_or(deadline), deadline);
  gang.stop_may_take_longer = false;
}

void ControllerCore::On(const ResumeRequested& request) {
  Reply reply{request.request, {}, {}};
  const Result<JobView> found = FindJob(request.job);
  if (!found.ok()) {
    reply.status = found.status();
  } else {
    JobEntry& job = jobs_.at(found->record->id);
    reply.status = CheckGoesOn(job, "resume");
    if (reply.status.ok() && job.record.state == JobState::kStopping) {
      reply.status =
          FailedPrecondition(NameOf(job) + " is still being suspended; 'muster suspend " +
                             job.record.id.value + " --wait' returns when it is");
    }
    // One that goes on already was resumed before, by a call whose answer was lost.
    if (reply.status.ok() && job.record.state == JobState::kSuspended) Resume(job);
    if (reply.status.ok()) reply.body = ResumeAccepted{job.record.id, job.record.state};
  }
  out_.replies.push_back(std::move(reply));
}

void ControllerCore::Resume(JobEntry& job) {
  JobRecord& record = job.record;
  const std::int64_t aside = std::max<std::int64_t>(0, now_.unix_ms - record.suspended_unix_ms);
  if (record.started_unix_ms > 0) record.suspended_ms += aside;
  record.suspended_unix_ms = 0;
  record.reason.clear();
  job.told_waiting = false;
  job.time_limit_at = TimeLimitAt(job, now_);
  Move(job, JobEvent::kResume);
  RecordEvent(job, {"resuming", Severity::kInfo,
                    "to go on, after it was suspended for " + SecondsText(double(aside) / 1000)});
  // The placement is decided in the same step, so that one commit covers both.
  Schedule();
}

}  // namespace muster
