// down: stops the cluster on this machine.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/local/local_cluster.h"
#include "common/base/strings.h"

namespace muster::verbs {

struct Down {
  static constexpr char kName[] = "down";
  static constexpr char kSummary[] = "Stop the local cluster; its jobs continue after the next up";

  Duration timeout = std::chrono::seconds(10);

  void AddFlags(Flags& flags) {
    flags.Add("--timeout DURATION", timeout, "Grace period before SIGKILL");
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_RETURN_IF_ERROR(context.client.CheckIsLocal());
    MUSTER_ASSIGN_OR_RETURN(const DownReport report,
                            LocalCluster(context.client, "").Down(timeout));
    const Json json = {{"dir", context.dir()}, {"ended", report.ended}, {"left", report.left}};
    if (!PrintStructured(context.terminal.out, context.output, json, "dir")) {
      if (report.ended.empty() && report.left.empty())
        context.terminal.out << "nothing runs in " << context.dir() << "\n";
      for (const std::string& process : report.ended)
        context.terminal.out << "ended " << process << "\n";
    }
    if (report.left.empty()) return kExitSuccess;
    return Internal("could not end " + Join(report.left) +
                    "; a process in an uninterruptible wait ends when its device answers");
  }
};

template void AddVerb<Down>(CommandLine& line);

}  // namespace muster::verbs
