// attach: follows a job.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/follow/follow_job.h"

namespace muster::verbs {

struct Attach {
  static constexpr char kName[] = "attach";
  static constexpr char kSummary[] = "Follow a job's progress; Ctrl-C detaches";

  std::string job;

  void AddFlags(Flags& flags) { flags.Add("JOB", job, kJobHelp).Required(); }
  CommandResult Run(CommandContext& context) const { return AttachToJob(context, {.job = job}); }
};

template void AddVerb<Attach>(CommandLine& line);

}  // namespace muster::verbs
