// wait: waits for the end of a job.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/follow/follow_job.h"

namespace muster::verbs {

struct Wait {
  static constexpr char kName[] = "wait";
  static constexpr char kSummary[] =
      "Wait until a job ends, or has finished a step; exit with its result";

  WaitOptions options;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", options.job, kJobHelp).Required();
    flags.Add(
        "--timeout DURATION", options.timeout,
        "Maximum time to wait, such as 90s or 10m; exit code 7 after it [default: unlimited]");
    flags
        .Add("--step N", options.step,
             "Wait only until the job has finished this step, or until it runs (0)")
        .AtLeast(0);
  }
  CommandResult Run(CommandContext& context) const { return WaitForJob(context, options); }
};

template void AddVerb<Wait>(CommandLine& line);

}  // namespace muster::verbs
