// suspend: saves the state of jobs and frees their slots until they are resumed.

#include <map>

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
  static constexpr char kSummary[] = "Save the state of jobs and stop them until they are resumed";

  std::vector<std::string> jobs;
  std::optional<Duration> by;
  std::string reason;
  bool wait = false;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", jobs, kJobHelp).Required();
    flags.Add("--by DURATION", by,
              "Kill ranks that have not saved after this time [default: unlimited]");
    flags.Add("--reason TEXT", reason, "Reason to record in the job's history");
    flags.Add("--wait", wait, "Wait until the jobs have stopped");
  }

  CommandResult Run(CommandContext& context) const {
    // All of them save at the same time.
    std::map<std::string, Result<v1::SuspendResponse>> orders;
    for (const std::string& job : jobs) {
      v1::SuspendRequest request;
      request.set_job(job);
      request.set_reason(reason);
      if (by) request.set_by_seconds(BySeconds(*by));
      orders.try_emplace(job, context.client.Suspend(request));
    }
    return ChangeJobs(context, jobs, [&](const std::string& job) -> Result<ChangedJob> {
      MUSTER_ASSIGN_OR_RETURN(const v1::SuspendResponse response, orders.at(job));
      Outcome outcome{response.state(), ""};
      if (wait) {
        MUSTER_ASSIGN_OR_RETURN(outcome, WaitUntilStopped(context, response.id()));
      }
      ChangedJob changed{response.id(), outcome.state};
      if (outcome.state == v1::JOB_STATE_STOPPING) changed.more = "; it saves its state first";
      if (!outcome.reason.empty()) changed.more += " (" + Printable(outcome.reason) + ")";
      const bool as_asked =
          outcome.state == v1::JOB_STATE_SUSPENDED || outcome.state == v1::JOB_STATE_STOPPING;
      changed.as_asked = as_asked || outcome.state == v1::JOB_STATE_SUCCEEDED;
      return changed;
    });
  }
};

template void AddVerb<Suspend>(CommandLine& line);

}  // namespace muster::verbs
