// slurm attach: follows a job from the login node.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/slurm/follow_slurm_job.h"
#include "cli/slurm/slurm_job.h"

namespace muster::verbs {

struct SlurmAttach {
  static constexpr char kName[] = "attach";
  static constexpr char kSummary[] = "Follow a job's progress from the login node; Ctrl-C detaches";

  std::string job;
  std::string state;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", job, kSlurmJobHelp).Required();
    flags.Add("--state DIR", state, kSlurmStateHelp);
  }
  CommandResult Run(CommandContext& context) const {
    return AttachToSlurmJob(context, UserSlurmCommands(), job, state);
  }
};

template void AddVerb<SlurmAttach>(CommandLine& line);

}  // namespace muster::verbs
