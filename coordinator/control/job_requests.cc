#include "coordinator/control/job_requests.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "common/base/text.h"
#include "common/job_spec/parse.h"
#include "coordinator/control/checkpoints.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/placement.h"
#include "coordinator/control/queries.h"
#include "coordinator/control/stopping.h"
#include "coordinator/control/time_booking.h"
#include "coordinator/control/words.h"

namespace muster::control {
namespace {

// Limit of jobs that are not over. A client that submits in a loop must not fill the disk.
constexpr std::size_t kMaxLiveJobs = 10000;
constexpr std::size_t kMaxSpecBytes = 1 << 20;
constexpr std::size_t kMaxKeyBytes = 256;

std::string NameOf(const JobEntry& job) {
  return "job " + job.record.id.value + " (" + job.record.name + ")";
}

// A job that is over, or about to end, is neither suspended nor resumed.
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

Status CheckOutputFree(const Transaction& tx, const std::string& output_dir) {
  const auto owner = tx.state.output_owners.find(output_dir);
  if (owner == tx.state.output_owners.end()) return OkStatus();
  const JobEntry& other = tx.job(owner->second.job);
  if (other.over()) return OkStatus();
  const JobRecord& job = other.record;
  return AlreadyExists("job " + job.id.value + " (" + job.name + ", " +
                       std::string(Name(job.state)) + ") writes to " + output_dir +
                       "; choose another output directory, or cancel that job first");
}

Result<JobEntry*> AcceptJob(Transaction& tx, const SubmitRequested& request) {
  if (request.spec_yaml.size() > kMaxSpecBytes || request.key.size() > kMaxKeyBytes) {
    return InvalidArgument("the job file may have 1 MiB and the key 256 bytes; this is more");
  }
  MUSTER_ASSIGN_OR_RETURN(JobSpec spec, request.spec);
  if (tx.options.check_job) MUSTER_RETURN_IF_ERROR(tx.options.check_job(spec));
  const std::string output_dir =
      std::filesystem::path(OutputDirectory(spec, request.new_id)).lexically_normal().string();
  if (!output_dir.starts_with('/')) {
    return InvalidArgument("workdir: '" + spec.workdir +
                           "' is not absolute; submit with the muster command, which makes it so");
  }
  MUSTER_RETURN_IF_ERROR(CheckOutputFree(tx, output_dir));
  if (tx.state.live.size() >= kMaxLiveJobs) {
    return ResourceExhausted("10000 jobs wait or run already; cancel some or wait");
  }
  if (request.new_id.empty() || tx.state.jobs.contains(request.new_id) ||
      tx.state.archive.contains(request.new_id)) {
    return Unavailable("the id drawn for the job is taken; submit again");
  }

  JobEntry& job = tx.state.jobs[request.new_id];
  job.record.id = request.new_id;
  job.record.name = spec.name;
  job.record.key = request.key;
  job.record.spec_yaml = request.spec_yaml;
  job.record.output_dir = output_dir;
  job.record.priority = spec.priority;
  job.record.submit_order = tx.state.next_order++;
  job.record.world_size = spec.world_size();
  job.record.max_steps = spec.train ? spec.train->schedule.max_steps : 0;
  job.record.submitted_unix_ms = tx.now.unix_ms;
  job.spec = std::move(spec);
  tx.state.order[job.record.submit_order] = job.record.id;
  tx.state.live.insert(job.record.id);
  RegisterOutput(tx, job.record);
  if (!request.key.empty()) tx.state.keys[request.key] = job.record.id;
  job.ledger.Begin({.doing = TimeUseOf(job)}, 0, tx.now.mono, tx.now.unix_ms);
  tx.Mark(job);
  tx.RecordEvent(
      job, {"submitted", Severity::kInfo,
            "job " + job.record.name + " submitted: " + std::to_string(job.spec.resources.nodes) +
                " x " + std::to_string(job.spec.resources.ranks_per_node) + " ranks"});
  return &job;
}

// The name of the same job file is the job's.
void AnswerByArchive(const SubmitRequested& request, const Archive::Jobs::value_type& archived,
                     Reply* reply) {
  const auto& [id, job] = archived;
  if (job.spec_print == TextPrint(request.spec_yaml)) {
    reply->body = SubmitAccepted{id, request.spec.ok() ? request.spec->name : "", job.state, true};
  } else {
    reply->status = AlreadyExists("key '" + request.key + "' belongs to job " + id.value +
                                  " (archived), which was submitted with another job file; use "
                                  "another key");
  }
}

void Suspend(Transaction& tx, JobEntry& job, const SuspendRequested& request) {
  JobRecord& record = job.record;
  if (record.state == JobState::kSuspended) return;
  const std::int64_t by =
      tx.now.unix_ms +
      std::max<std::int64_t>(1, static_cast<std::int64_t>(request.by_seconds * 1000));
  const bool sooner =
      request.by_seconds > 0 && (record.stop_by_unix_ms == 0 || by < record.stop_by_unix_ms);
  if (sooner) {
    record.stop_by_unix_ms = by;
    tx.Mark(job);
  }
  if (record.stop == StopKind::kNone) {
    const std::string why = request.reason.empty() ? "requested by a user" : request.reason;
    return StopJob(tx, job, StopKind::kSuspend, "suspended: " + CutText(why, kMaxReasonBytes));
  }
  // It is already being suspended, and has less time than was planned.
  if (!sooner || !job.gang) return;
  const TimePoint deadline = tx.now.mono + FromSeconds(request.by_seconds);
  if (Running* running = In<Running>(*job.gang); running != nullptr && running->stop) {
    ShortenStop(*running->stop, deadline);
  } else if (Aborting* aborting = In<Aborting>(*job.gang); aborting && aborting->save_deadline) {
    aborting->save_deadline = std::min(*aborting->save_deadline, deadline);
  }
}

void Resume(Transaction& tx, JobEntry& job) {
  JobRecord& record = job.record;
  const std::int64_t aside = std::max<std::int64_t>(0, tx.now.unix_ms - record.suspended_unix_ms);
  if (record.started_unix_ms > 0) record.suspended_ms += aside;
  record.suspended_unix_ms = 0;
  record.reason.clear();
  job.told_waiting = false;
  job.time_limit_at = TimeLimitAt(job, tx.now);
  tx.Move(job, JobEvent::kResume);
  tx.RecordEvent(job,
                 {"resuming", Severity::kInfo,
                  "to go on, after it was suspended for " + SecondsText(double(aside) / 1000)});
  // The placement is decided in the same step, so that one commit covers both.
  Schedule(tx);
}

}  // namespace

void On(Transaction& tx, const SubmitRequested& request) {
  Reply reply{request.request, {}, {}};
  const auto known = request.key.empty() ? tx.state.keys.end() : tx.state.keys.find(request.key);
  const Archive::Jobs::value_type* archived = tx.state.archive.FindKey(request.key);
  if (known != tx.state.keys.end()) {
    const JobRecord& job = tx.job(known->second).record;
    if (job.spec_yaml == request.spec_yaml) {
      reply.body = SubmitAccepted{job.id, job.name, job.state, true};
    } else {
      reply.status =
          AlreadyExists("key '" + request.key + "' belongs to job " + job.id.value + " (" +
                        job.name + "), which was submitted with another job file; use another key");
    }
  } else if (archived != nullptr) {
    AnswerByArchive(request, *archived, &reply);
  } else if (Result<JobEntry*> job = AcceptJob(tx, request); !job.ok()) {
    reply.status = job.status();
  } else {
    // The placement is decided in the same step, so that one commit covers both.
    Schedule(tx);
    reply.body =
        SubmitAccepted{(*job)->record.id, (*job)->record.name, (*job)->record.state, false};
  }
  tx.out.replies.push_back(std::move(reply));
}

void On(Transaction& tx, const CancelRequested& request) {
  Reply reply{request.request, {}, {}};
  Result<JobView> found = FindJob(tx.state, request.job);
  const Archive::Jobs::value_type* archived = FindArchived(tx.state, request.job);
  if (archived != nullptr && archived->second.state == JobState::kCancelled) {
    reply.body = CancelAccepted{archived->first, JobState::kCancelled};
  } else if (!found.ok()) {
    reply.status = found.status();
  } else {
    JobEntry& job = tx.job(found->record->id);
    if (job.over() && job.record.state != JobState::kCancelled) {
      reply.status = FailedPrecondition(
          "job " + job.record.id.value + " (" + job.record.name + ") has already " +
          (job.record.state == JobState::kFailed ? "failed" : "succeeded") +
          "; there is nothing to cancel");
    } else {
      if (!job.over()) {
        StopJob(tx, job, StopKind::kCancel,
                request.reason.empty() ? "cancelled by a user"
                                       : "cancelled: " + CutText(request.reason, kMaxReasonBytes));
      }
      reply.body = CancelAccepted{job.record.id, job.record.state};
    }
  }
  tx.out.replies.push_back(std::move(reply));
}

void On(Transaction& tx, const SuspendRequested& request) {
  Reply reply{request.request, {}, {}};
  const Result<JobView> found = FindJob(tx.state, request.job);
  if (!found.ok()) {
    reply.status = found.status();
  } else if (!(request.by_seconds >= 0)) {
    reply.status = InvalidArgument("the time to save the state cannot be negative");
  } else {
    JobEntry& job = tx.job(found->record->id);
    reply.status = CheckGoesOn(job, "suspend");
    if (reply.status.ok()) {
      Suspend(tx, job, request);
      reply.body = SuspendAccepted{job.record.id, job.record.state};
    }
  }
  tx.out.replies.push_back(std::move(reply));
}

void On(Transaction& tx, const ResumeRequested& request) {
  Reply reply{request.request, {}, {}};
  const Result<JobView> found = FindJob(tx.state, request.job);
  if (!found.ok()) {
    reply.status = found.status();
  } else {
    JobEntry& job = tx.job(found->record->id);
    reply.status = CheckGoesOn(job, "resume");
    if (reply.status.ok() && job.record.state == JobState::kStopping) {
      reply.status =
          FailedPrecondition(NameOf(job) + " is still being suspended; 'muster suspend " +
                             job.record.id.value + " --wait' returns when it is");
    }
    // One that is already running again was resumed before, by a call whose answer was lost.
    if (reply.status.ok() && job.record.state == JobState::kSuspended) Resume(tx, job);
    if (reply.status.ok()) reply.body = ResumeAccepted{job.record.id, job.record.state};
  }
  tx.out.replies.push_back(std::move(reply));
}

}  // namespace muster::control
