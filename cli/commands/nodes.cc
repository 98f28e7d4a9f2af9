// nodes, drain, undrain: what ranks run on.

#include <algorithm>

#include "cli/commands/commands.h"
#include "cli/commands/state_line.h"
#include "cli/exit_code.h"
#include "cli/job_json.h"
#include "cli/node_reports.h"

namespace muster {
namespace {

constexpr auto kDrainPoll = std::chrono::milliseconds(200);

// Why it drains and until when, and what it says of itself.
std::string NoteOf(const v1::Node& node) {
  std::string note = Printable(node.reason());
  if (node.drain_by_unix_ms() > 0)
    note += (note.empty() ? "by " : ", by ") + LocalClock(node.drain_by_unix_ms());
  for (const auto& notice : node.notices()) note += (note.empty() ? "" : "; ") + Printable(notice);
  return note;
}

const v1::Node* FindNode(const v1::ListNodesResponse& nodes, const std::string& name) {
  for (const auto& node : nodes.nodes())
    if (node.name() == name) return &node;
  return nullptr;
}

// Until nothing of a job is left on the node.
Result<v1::NodeState> WaitUntilDrained(CommandContext& context, const std::string& name) {
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const v1::ListNodesResponse nodes, context.client.ListNodes());
    const v1::Node* node = FindNode(nodes, name);
    if (node == nullptr) return NotFound("node " + name + " is gone");
    switch (node->state()) {
      case v1::NODE_STATE_DRAINED: return node->state();
      case v1::NODE_STATE_DRAINING:
      case v1::NODE_STATE_SUSPECT: break;
      case v1::NODE_STATE_LOST:
        return Cancelled(
            "node " + name +
            " is lost: what still runs there nobody can say; its jobs go on elsewhere, "
            "and it is drained when it comes back");
      default:
        return Cancelled("node " + name + " is " + StateWord(node->state()) +
                         " and no longer draining");
    }
    if (context.interrupt().WaitFor(kDrainPoll)) return Cancelled("interrupted");
  }
}

// Those that are named, in the list's order; all where none is.
Result<v1::ListNodesResponse> Chosen(const v1::ListNodesResponse& all,
                                     const std::vector<std::string>& names) {
  if (names.empty()) return all;
  for (const std::string& name : names)
    if (FindNode(all, name) == nullptr)
      return NotFound("there is no node " + name + "; muster nodes lists those that have come");
  v1::ListNodesResponse chosen;
  for (const auto& node : all.nodes())
    if (std::find(names.begin(), names.end(), node.name()) != names.end())
      *chosen.add_nodes() = node;
  return chosen;
}

}  // namespace

CommandResult RunNodes(CommandContext& context, const NodesOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const v1::ListNodesResponse all, context.client.ListNodes());
  MUSTER_ASSIGN_OR_RETURN(const v1::ListNodesResponse nodes, Chosen(all, options.nodes));
  Terminal& terminal = context.terminal;
  if (PrintStructured(terminal.out, context.output, NodeListJson(nodes), "name"))
    return kExitSuccess;
  if (options.report) {
    terminal.out << NodeReportsText(nodes);
    return kExitSuccess;
  }
  const bool wide = context.output == OutputFormat::kWide;
  std::vector<std::string> headers = {"NAME", "STATE", "ADDRESS", "SLOTS", "USED", "PID"};
  if (wide) headers.insert(headers.end(), {"VERSION", "LAST SEEN", "DOMAIN", "PILOT"});
  headers.push_back("NOTE");
  Table table(headers);
  for (const auto& node : nodes.nodes()) {
    std::vector<std::string> row = {node.name(),
                                    StateWord(node.state()),
                                    node.address(),
                                    std::to_string(node.slots()),
                                    std::to_string(node.slots_used()),
                                    node.pid() > 0 ? std::to_string(node.pid()) : "-"};
    if (wide)
      row.insert(row.end(), {node.version(), LocalTime(node.last_seen_unix_ms()),
                             Printable(node.failure_domain()),
                             node.pilot().empty() ? "-" : Printable(node.pilot())});
    row.push_back(NoteOf(node));
    table.Add(std::move(row));
  }
  table.Print(terminal.out, terminal.color);
  return kExitSuccess;
}

CommandResult RunDrain(CommandContext& context, const DrainOptions& options) {
  v1::DrainRequest request;
  request.set_node(options.node);
  request.set_reason(options.reason);
  if (options.by) request.set_by_seconds(ToSeconds(*options.by));
  MUSTER_ASSIGN_OR_RETURN(const v1::DrainResponse response, context.client.Drain(request));
  v1::NodeState state = response.state();
  if (options.wait) {
    MUSTER_ASSIGN_OR_RETURN(state, WaitUntilDrained(context, options.node));
  }
  Json jobs = Json::array();
  std::string names;
  for (const auto& job : response.jobs()) {
    jobs.push_back(job);
    names += " " + job;
  }
  const std::string what =
      options.wait ? "; moved away:" : "; these jobs save their state and move:";
  PrintStateLine(context, {.kind = "node",
                           .key = "node",
                           .name = options.node,
                           .state = StateWord(state),
                           .more = names.empty() ? "" : what + names,
                           .fields = {{"jobs", jobs}}});
  return kExitSuccess;
}

CommandResult RunUndrain(CommandContext& context, const std::string& node) {
  v1::UndrainRequest request;
  request.set_node(node);
  MUSTER_ASSIGN_OR_RETURN(const v1::UndrainResponse response, context.client.Undrain(request));
  PrintStateLine(
      context, {.kind = "node", .key = "node", .name = node, .state = StateWord(response.state())});
  return kExitSuccess;
}

}  // namespace muster
