// cancel: ends jobs for good.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"

namespace muster::verbs {

struct Cancel {
  static constexpr char kName[] = "cancel";
  static constexpr char kSummary[] = "Cancel jobs";

  std::vector<std::string> jobs;
  std::string reason;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", jobs, kJobHelp).Required();
    flags.Add("--reason TEXT", reason, "Reason to record in the job's history");
    flags.SetFooter("Example: muster cancel llama-chat 7f3a9c1e2b --reason 'wrong data'");
  }

  CommandResult Run(CommandContext& context) const {
    return ChangeJobs(context, jobs, [&](const std::string& job) -> Result<ChangedJob> {
      v1::CancelRequest request;
      request.set_job(job);
      request.set_reason(reason);
      MUSTER_ASSIGN_OR_RETURN(const v1::CancelResponse response, context.client.Cancel(request));
      return ChangedJob{response.id(), response.state()};
    });
  }
};

template void AddVerb<Cancel>(CommandLine& line);

}  // namespace muster::verbs
