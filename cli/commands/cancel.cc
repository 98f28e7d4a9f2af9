// cancel: ends a job for good.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"

namespace muster::verbs {

struct Cancel {
  static constexpr char kName[] = "cancel";
  static constexpr char kSummary[] = "Cancel a job";

  std::string job;
  std::string reason;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", job, kJobHelp).Required();
    flags.Add("--reason TEXT", reason, "Reason to record in the job's history");
  }

  CommandResult Run(CommandContext& context) const {
    v1::CancelRequest request;
    request.set_job(job);
    request.set_reason(reason);
    MUSTER_ASSIGN_OR_RETURN(const v1::CancelResponse response, context.client.Cancel(request));
    PrintState(context, response.id(), response.state());
    return kExitSuccess;
  }
};

template void AddVerb<Cancel>(CommandLine& line);

}  // namespace muster::verbs
