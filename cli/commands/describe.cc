// describe: the history of a job.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/jobs/job_json.h"
#include "cli/jobs/timeline.h"

namespace muster::verbs {

struct Describe {
  static constexpr char kName[] = "describe";
  static constexpr char kSummary[] = "Show a job's history: attempts, failures, recoveries";

  std::string job;

  void AddFlags(Flags& flags) { flags.Add("JOB", job, kJobHelp).Required(); }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const v1::Job found, context.client.GetJob(job));
    Terminal& terminal = context.terminal;
    if (!PrintStructured(terminal.out, context.output, JobJson(found), "id"))
      terminal.out << FormatTimeline(found, SameCluster(context), SystemClock().UnixMillis());
    return kExitSuccess;
  }
};

template void AddVerb<Describe>(CommandLine& line);

}  // namespace muster::verbs
