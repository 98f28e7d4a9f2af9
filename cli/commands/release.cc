// release: lets held jobs be placed.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"

namespace muster::verbs {

struct Release {
  static constexpr char kName[] = "release";
  static constexpr char kSummary[] = "Release held jobs, so that they are placed";

  std::vector<std::string> jobs;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", jobs, kJobHelp).Required();
    flags.SetFooter("Example: muster release llama-chat");
  }

  CommandResult Run(CommandContext& context) const {
    return ChangeJobs(
        context, jobs,
        [&](const std::string& job) -> Result<ChangedJob> {
          v1::ReleaseJobRequest request;
          request.set_job(job);
          MUSTER_ASSIGN_OR_RETURN(const v1::ReleaseJobResponse released,
                                  context.client.ReleaseJob(request));
          return ChangedJob{released.id(), released.state()};
        },
        OneJob::kList);
  }
};

template void AddVerb<Release>(CommandLine& line);

}  // namespace muster::verbs
