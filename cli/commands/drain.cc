// drain: moves all jobs off a node.

#include <algorithm>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/follow/reconnect.h"
#include "cli/jobs/job_json.h"
#include "common/base/strings.h"

namespace muster::verbs {
namespace {

constexpr auto kDrainPoll = std::chrono::milliseconds(200);

Result<v1::NodeState> WaitUntilDrained(CommandContext& context, const std::string& name) {
  Reconnect reconnect(context);
  reconnect.Answered();  // the order was
  for (;;) {
    const Result<v1::ListNodesResponse> nodes = context.client.ListNodes();
    if (!nodes.ok()) {
      MUSTER_RETURN_IF_ERROR(reconnect.Pause(nodes.status()));
      continue;
    }
    reconnect.Answered();
    const auto node = std::ranges::find(nodes->nodes(), name, &v1::Node::name);
    if (node == nodes->nodes().end()) return NotFound("node " + name + " is gone");
    switch (node->state()) {
      case v1::NODE_STATE_DRAINED: return node->state();
      case v1::NODE_STATE_DRAINING:
      case v1::NODE_STATE_SUSPECT: break;
      case v1::NODE_STATE_LOST:
        return Cancelled("node " + name +
                         " is lost, so what still runs there is unknown; its jobs continue "
                         "elsewhere, and the node is drained when it comes back");
      default:
        return Cancelled("node " + name + " is " + StateWord(node->state()) +
                         " and no longer draining");
    }
    if (context.interrupt().WaitFor(kDrainPoll)) return Cancelled("interrupted");
  }
}

}  // namespace

struct Drain {
  static constexpr char kName[] = "drain";
  static constexpr char kSummary[] = "Drain a node: its jobs save their state and move";

  std::string node;
  std::optional<Duration> by;
  std::string reason;
  bool wait = false;

  void AddFlags(Flags& flags) {
    flags.Add("NODE", node, "Node name").Required();
    flags.Add("--by DURATION", by,
              "Kill what still runs after this time, such as 90s or 10m [default: unlimited]");
    flags.Add("--reason TEXT", reason, "Reason to show in the list of nodes");
    flags.Add("--wait", wait, "Wait until no job is left on the node");
  }

  CommandResult Run(CommandContext& context) const {
    v1::DrainRequest request;
    request.set_node(node);
    request.set_reason(reason);
    if (by) request.set_by_seconds(BySeconds(*by));
    MUSTER_ASSIGN_OR_RETURN(const v1::DrainResponse response, context.client.Drain(request));
    v1::NodeState state = response.state();
    if (wait) {
      MUSTER_ASSIGN_OR_RETURN(state, WaitUntilDrained(context, node));
    }
    const std::vector<std::string> jobs(response.jobs().begin(), response.jobs().end());
    const std::string what = wait ? "; moved jobs: " : "; moving jobs: ";
    PrintState(context, node, state, jobs.empty() ? "" : what + Join(jobs), {{"jobs", jobs}});
    return kExitSuccess;
  }
};

template void AddVerb<Drain>(CommandLine& line);

}  // namespace muster::verbs
