// explain: why a job waits, and what would start it now.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/jobs/explanation.h"

namespace muster::verbs {

struct Explain {
  static constexpr char kName[] = "explain";
  static constexpr char kSummary[] = "Show why a job waits, and which change would start it now";

  std::string job;

  void AddFlags(Flags& flags) { flags.Add("JOB", job, kJobHelp).Required(); }

  CommandResult Run(CommandContext& context) const {
    v1::ExplainJobRequest request;
    request.set_job(job);
    MUSTER_ASSIGN_OR_RETURN(const v1::ExplainJobResponse answer,
                            context.client.ExplainJob(request));
    if (!PrintStructured(context.terminal.out, context.output, ExplanationJson(answer), "id"))
      context.terminal.out << ExplanationText(answer);
    return kExitSuccess;
  }
};

template void AddVerb<Explain>(CommandLine& line);

}  // namespace muster::verbs
