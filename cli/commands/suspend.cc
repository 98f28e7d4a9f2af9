// suspend: saves a job's state and frees its slots until it is resumed.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/follow/reconnect.h"

namespace muster::verbs {
namespace {

constexpr auto kSuspendPoll = std::chrono::milliseconds(200);

struct Outcome {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  std::string reason;
};

// The job may end in another way: it did its last step meanwhile, or a user cancelled it.
Result<Outcome> WaitUntilStopped(CommandContext& context, const std::string& id) {
  Reconnect reconnect(context);
  reconnect.Answered();  // the order was
  for (;;) {
    const Result<v1::Job> job = context.client.GetJob(id);
    if (!job.ok()) {
      MUSTER_RETURN_IF_ERROR(reconnect.Pause(job.status()));
      continue;
    }
    reconnect.Answered();
    if (job->state() != v1::JOB_STATE_STOPPING) return Outcome{job->state(), job->reason()};
    if (context.interrupt().WaitFor(kSuspendPoll)) return Cancelled("interrupted");
  }
}

}  // namespace

struct Suspend {
  static constexpr char kName[] = "suspend";
  static constexpr char kSummary[] = "Save a job's state and stop it until it is resumed";

  std::string job;
  std::optional<Duration> by;
  std::string reason;
  bool wait = false;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", job, kJobHelp).Required();
    flags.Add("--by DURATION", by,
              "Kill ranks that have not saved after this time [default: unlimited]");
    flags.Add("--reason TEXT", reason, "Reason to record in the job's history");
    flags.Add("--wait", wait, "Wait until the job has stopped");
  }

  CommandResult Run(CommandContext& context) const {
    v1::SuspendRequest request;
    request.set_job(job);
    request.set_reason(reason);
    if (by) request.set_by_seconds(BySeconds(*by));
    MUSTER_ASSIGN_OR_RETURN(const v1::SuspendResponse response, context.client.Suspend(request));
    Outcome outcome{response.state(), ""};
    if (wait) {
      MUSTER_ASSIGN_OR_RETURN(outcome, WaitUntilStopped(context, response.id()));
    }
    std::string more;
    if (outcome.state == v1::JOB_STATE_STOPPING) more = "; it saves its state first";
    if (!outcome.reason.empty()) more += " (" + Printable(outcome.reason) + ")";
    PrintState(context, response.id(), outcome.state, more);
    const bool as_asked =
        outcome.state == v1::JOB_STATE_SUSPENDED || outcome.state == v1::JOB_STATE_STOPPING;
    return as_asked || outcome.state == v1::JOB_STATE_SUCCEEDED ? kExitSuccess : kExitError;
  }
};

template void AddVerb<Suspend>(CommandLine& line);

}  // namespace muster::verbs
