// resume: continues a suspended job.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"

namespace muster::verbs {

struct Resume {
  static constexpr char kName[] = "resume";
  static constexpr char kSummary[] = "Resume a suspended job from its newest checkpoint";

  std::string job;

  void AddFlags(Flags& flags) { flags.Add("JOB", job, kJobHelp).Required(); }

  CommandResult Run(CommandContext& context) const {
    v1::ResumeRequest request;
    request.set_job(job);
    MUSTER_ASSIGN_OR_RETURN(const v1::ResumeResponse response, context.client.Resume(request));
    PrintState(context, response.id(), response.state());
    return kExitSuccess;
  }
};

template void AddVerb<Resume>(CommandLine& line);

}  // namespace muster::verbs
