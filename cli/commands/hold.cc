// hold: keeps jobs in the queue until they are released.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"

namespace muster::verbs {

struct Hold {
  static constexpr char kName[] = "hold";
  static constexpr char kSummary[] = "Keep queued jobs from being placed until they are released";

  std::vector<std::string> jobs;
  std::string reason;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", jobs, kJobHelp).Required();
    flags.Add("--reason TEXT", reason, "Reason to show for the job");
    flags.SetFooter("Example: muster hold llama-chat --reason 'data is not complete'");
  }

  CommandResult Run(CommandContext& context) const {
    return ChangeJobs(
        context, jobs,
        [&](const std::string& job) -> Result<ChangedJob> {
          v1::HoldJobRequest request;
          request.set_job(job);
          request.set_reason(reason);
          MUSTER_ASSIGN_OR_RETURN(const v1::HoldJobResponse held, context.client.HoldJob(request));
          return ChangedJob{held.id(), held.state(), " and held"};
        },
        OneJob::kList);
  }
};

template void AddVerb<Hold>(CommandLine& line);

}  // namespace muster::verbs
