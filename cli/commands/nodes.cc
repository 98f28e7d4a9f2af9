// nodes: the nodes of the cluster.

#include <algorithm>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/jobs/job_json.h"
#include "cli/jobs/node_reports.h"

namespace muster::verbs {
namespace {

// The reason and the end of a drain, and the notices of the node.
std::string NoteOf(const v1::Node& node) {
  std::string note = Printable(node.reason());
  if (node.drain_by_unix_ms() > 0)
    note += (note.empty() ? "by " : ", by ") + LocalClock(node.drain_by_unix_ms());
  for (const auto& notice : node.notices()) note += (note.empty() ? "" : "; ") + Printable(notice);
  return note;
}

// The named nodes, in the order of the list; all of them without names.
Result<v1::ListNodesResponse> Select(const v1::ListNodesResponse& all,
                                     const std::vector<std::string>& names) {
  if (names.empty()) return all;
  for (const std::string& name : names)
    if (std::ranges::find(all.nodes(), name, &v1::Node::name) == all.nodes().end())
      return NotFound("there is no node " + name + "\n  next: muster nodes");
  v1::ListNodesResponse chosen;
  for (const auto& node : all.nodes())
    if (std::find(names.begin(), names.end(), node.name()) != names.end())
      *chosen.add_nodes() = node;
  return chosen;
}

}  // namespace

struct Nodes {
  static constexpr char kName[] = "nodes";
  static constexpr char kSummary[] = "List nodes";

  std::vector<std::string> names;
  bool report = false;

  void AddFlags(Flags& flags) {
    flags.Add("NODE", names, "Only these nodes [default: all]");
    flags.Add("--report", report,
              "Show the nodes' addresses, networks, and GPUs: problems first, each line once with "
              "the nodes that it applies to");
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const v1::ListNodesResponse all, context.client.ListNodes());
    MUSTER_ASSIGN_OR_RETURN(const v1::ListNodesResponse nodes, Select(all, names));
    Terminal& terminal = context.terminal;
    if (PrintStructured(terminal.out, context.output, NodeListJson(nodes), "name"))
      return kExitSuccess;
    if (report) {
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
};

template void AddVerb<Nodes>(CommandLine& line);

}  // namespace muster::verbs
