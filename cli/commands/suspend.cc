// suspend, resume: jobs that are set aside and brought back.

#include "cli/commands/commands.h"
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
  const Json json = {{"id", response.id()}, {"state", StateWord(outcome.state)}};
  if (PrintStructured(context.terminal.out, context.output, json, "id")) return code;
  std::ostream& out = context.terminal.out;
  out << "job " << response.id() << " is " << StateWord(outcome.state);
  if (outcome.state == v1::JOB_STATE_STOPPING) out << "; it saves its state first";
  if (!outcome.reason.empty()) out << " (" << Printable(outcome.reason) << ")";
  out << "\n";
  return code;
}

CommandResult RunResume(CommandContext& context, const std::string& job) {
  v1::ResumeRequest request;
  request.set_job(job);
  MUSTER_ASSIGN_OR_RETURN(const v1::ResumeResponse response, context.client.Resume(request));
  const Json json = {{"id", response.id()}, {"state", StateWord(response.state())}};
  if (PrintStructured(context.terminal.out, context.output, json, "id")) return kExitSuccess;
  context.terminal.out << "job " << response.id() << " is " << StateWord(response.state()) << "\n";
  return kExitSuccess;
}

}  // namespace muster
