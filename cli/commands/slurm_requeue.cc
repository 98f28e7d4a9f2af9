// slurm requeue: puts a job back into Slurm's queue.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/slurm/slurm_job.h"

namespace muster::verbs {

struct SlurmRequeue {
  static constexpr char kName[] = "requeue";
  static constexpr char kSummary[] = "Save a job's state, stop it, and queue it again";

  std::string job;
  bool now = false;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", job, kSlurmJobHelp).Required();
    flags.Add("--now", now, "Do not save first");
  }

  CommandResult Run(CommandContext& context) const {
    const slurm::SlurmCommands commands = UserSlurmCommands();
    MUSTER_ASSIGN_OR_RETURN(const SlurmJob found, FindSlurmJob(commands, CurrentUser(), job, ""));
    const bool save = found.slurm.state == "RUNNING" && !now;
    // On USR2 the supervisors save, stop and requeue the job.
    const Status done =
        save ? commands.Signal(found.slurm.ref(), "USR2") : commands.Requeue(found.slurm.ref());
    MUSTER_RETURN_IF_ERROR(done);
    Terminal& terminal = context.terminal;
    const Json json = {{"slurm_job_id", found.slurm.id},
                       {"slurm_job", found.slurm.shown_id},
                       {"name", found.slurm.name},
                       {"requeue", save ? "after saving" : "now"}};
    if (!PrintStructured(terminal.out, context.output, json, "name"))
      terminal.out << "job " << found.slurm.ref().text()
                   << (save ? " is requeued after it has saved its state\n" : " is requeued\n");
    return kExitSuccess;
  }
};

template void AddVerb<SlurmRequeue>(CommandLine& line);

}  // namespace muster::verbs
