// Submission of a job file that was parsed: checked, recorded, acknowledged once that is durable.

#include <filesystem>

#include "common/job_spec/parse.h"
#include "coordinator/control/core.h"

namespace muster {
namespace {

// Jobs that are not over. A client that loops must not be able to fill the disk.
constexpr std::size_t kMaxLiveJobs = 10000;
constexpr std::size_t kMaxSpecBytes = 1 << 20;
constexpr std::size_t kMaxKeyBytes = 256;

}  // namespace

void ControllerCore::On(const SubmitRequested& request) {
  Reply reply{request.request, {}, {}};
  const auto known = request.key.empty() ? keys_.end() : keys_.find(request.key);
  if (known != keys_.end()) {
    const JobRecord& job = jobs_.at(known->second).record;
    if (job.spec_yaml == request.spec_yaml) {
      reply.body = SubmitAccepted{job.id, job.name, job.state, true};
    } else {
      reply.status =
          AlreadyExists("key '" + request.key + "' belongs to job " + job.id.value + " (" +
                        job.name + "), which was submitted with another job file; use another key");
    }
  } else if (Result<JobEntry*> job = AcceptJob(request); !job.ok()) {
    reply.status = job.status();
  } else {
    // The placement is decided in the same step, so that one commit covers both.
    Schedule();
    reply.body =
        SubmitAccepted{(*job)->record.id, (*job)->record.name, (*job)->record.state, false};
  }
  out_.replies.push_back(std::move(reply));
}

Result<JobEntry*> ControllerCore::AcceptJob(const SubmitRequested& request) {
  if (request.spec_yaml.size() > kMaxSpecBytes || request.key.size() > kMaxKeyBytes) {
    return InvalidArgument("the job file may have 1 MiB and the key 256 bytes; this is more");
  }
  MUSTER_ASSIGN_OR_RETURN(JobSpec spec, request.spec);
  if (options_.check_job) MUSTER_RETURN_IF_ERROR(options_.check_job(spec));
  const std::string output_dir =
      std::filesystem::path(OutputDirectory(spec, request.new_id)).lexically_normal().string();
  if (!output_dir.starts_with('/')) {
    return InvalidArgument("workdir: '" + spec.workdir +
                           "' is not absolute; submit with the muster command, which makes it so");
  }
  MUSTER_RETURN_IF_ERROR(CheckOutputFree(output_dir));
  if (live_.size() >= kMaxLiveJobs) {
    return ResourceExhausted("10000 jobs wait or run already; cancel some or wait");
  }
  if (request.new_id.empty() || jobs_.contains(request.new_id)) {
    return Unavailable("the id drawn for the job is taken; submit again");
  }

  JobEntry& job = jobs_[request.new_id];
  job.record.id = request.new_id;
  job.record.name = spec.name;
  job.record.key = request.key;
  job.record.spec_yaml = request.spec_yaml;
  job.record.output_dir = output_dir;
  job.record.priority = spec.priority;
  job.record.submit_order = next_order_++;
  job.record.world_size = spec.world_size();
  job.record.max_steps = spec.train ? spec.train->schedule.max_steps : 0;
  job.record.submitted_unix_ms = now_.unix_ms;
  job.spec = std::move(spec);
  order_.push_back(job.record.id);
  live_.insert(job.record.id);
  scrubs_.Register(job.record);
  if (!request.key.empty()) keys_[request.key] = job.record.id;
  job.ledger.Begin({.doing = TimeUseOf(job)}, 0, now_.mono, now_.unix_ms);
  Mark(job);
  RecordEvent(
      job, {"submitted", Severity::kInfo,
            "job " + job.record.name + " submitted: " + std::to_string(job.spec.resources.nodes) +
                " x " + std::to_string(job.spec.resources.ranks_per_node) + " ranks"});
  return &job;
}

Status ControllerCore::CheckOutputFree(const std::string& output_dir) const {
  for (const JobId& id : live_) {
    const JobRecord& job = jobs_.at(id).record;
    if (job.output_dir != output_dir) continue;
    return AlreadyExists("job " + id.value + " (" + job.name + ", " + std::string(Name(job.state)) +
                         ") writes to " + output_dir +
                         "; choose another output directory, or cancel that job first");
  }
  return OkStatus();
}

}  // namespace muster
