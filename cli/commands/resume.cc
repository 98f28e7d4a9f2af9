// resume: continues suspended jobs.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"

namespace muster::verbs {

struct Resume {
  static constexpr char kName[] = "resume";
  static constexpr char kSummary[] = "Resume suspended jobs from their newest checkpoints";

  std::vector<std::string> jobs;

  void AddFlags(Flags& flags) { flags.Add("JOB", jobs, kJobHelp).Required(); }

  CommandResult Run(CommandContext& context) const {
    return ChangeJobs(context, jobs, [&](const std::string& job) -> Result<ChangedJob> {
      v1::ResumeRequest request;
      request.set_job(job);
      MUSTER_ASSIGN_OR_RETURN(const v1::ResumeResponse response, context.client.Resume(request));
      return ChangedJob{response.id(), response.state()};
    });
  }
};

template void AddVerb<Resume>(CommandLine& line);

}  // namespace muster::verbs
