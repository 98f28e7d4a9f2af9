// suspend, resume: jobs that are set aside and brought back.

#include "cli/commands/commands.h"
#include "cli/commands/state_line.h"
#include "cli/exit_code.h"
#include "cli/job_json.h"

namespace muster {
namespace {

constexpr auto kSuspendPoll = std::chrono::milliseconds(200);

struct Outcome {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  std::string reason;
};

// Until nothing of the job runs any more. It may have done its last step meanwhile, or somebody may
// have cancelled it.
Result<Outcome> WaitUntilSuspended(CommandContext& context, const std::string& id) {
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const v1::Job job, context.client.GetJob(id));
    if (job.state() != v1::JOB_STATE_STOPPING) return Outcome{job.state(), job.reason()};
    if (context.interrupt().WaitFor(kSuspendPoll)) return Cancelled("interrupted");
  }
}

}  // namespace

CommandResult RunSuspend(CommandContext& context, const SuspendOptions& options) {
  v1::SuspendRequest request;
  request.set_job(options.job);
  request.set_reason(options.reason);
  if (options.by) request.set_by_seconds(ToSeconds(*options.by));
  MUSTER_ASSIGN_OR_RETURN(const v1::SuspendResponse response, context.client.Suspend(request));
  Outcome outcome{response.state(), ""};
  if (options.wait) {
    MUSTER_ASSIGN_OR_RETURN(outcome, WaitUntilSuspended(context, response.id()));
  }
  const bool as_asked =
      outcome.state == v1::JOB_STATE_SUSPENDED || outcome.state == v1::JOB_STATE_STOPPING;
  const int code = as_asked || outcome.state == v1::JOB_STATE_SUCCEEDED ? kExitSuccess : kExitError;
  std::string more;
  if (outcome.state == v1::JOB_STATE_STOPPING) more = "; it saves its state first";
  if (!outcome.reason.empty()) more += " (" + Printable(outcome.reason) + ")";
  PrintStateLine(context, {.kind = "job",
                           .key = "id",
                           .name = response.id(),
                           .state = StateWord(outcome.state),
                           .more = more});
  return code;
}

CommandResult RunResume(CommandContext& context, const std::string& job) {
  v1::ResumeRequest request;
  request.set_job(job);
  MUSTER_ASSIGN_OR_RETURN(const v1::ResumeResponse response, context.client.Resume(request));
  PrintStateLine(
      context,
      {.kind = "job", .key = "id", .name = response.id(), .state = StateWord(response.state())});
  return kExitSuccess;
}

}  // namespace muster
