// logs: what the ranks of a job have printed.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/follow/follow_logs.h"

namespace muster::verbs {

struct Logs {
  static constexpr char kName[] = "logs";
  static constexpr char kSummary[] = "Print the logs of a job's ranks";

  LogsOptions options;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", options.job, kJobHelp).Required();
    flags.Add("--rank N", options.rank, "Only the log of this rank");
    flags.Add("--generation N", options.generation, "Logs of this attempt [default: the newest]");
    flags.Add("--tail N", options.tail, "Only the last N lines of each rank").Range(0, 1e6);
    flags.Add("-f,--follow", options.follow, "Follow the log until the job ends");
  }
  CommandResult Run(CommandContext& context) const { return ShowLogs(context, options); }
};

template void AddVerb<Logs>(CommandLine& line);

}  // namespace muster::verbs
