// nodes: the nodes of the cluster.

#include <algorithm>
#include <map>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/jobs/job_json.h"
#include "cli/jobs/node_reports.h"
#include "common/base/byte_size.h"
#include "common/base/strings.h"

namespace muster::verbs {
namespace {

// Faults of devices, each with its id.
std::string DeviceFaultsOf(const v1::Node& node) {
  std::string faults;
  for (const auto& device : node.inventory().devices())
    if (!device.fault().empty())
      faults += (faults.empty() ? "" : "; ") + Printable(device.id() + ": " + device.fault());
  return faults;
}

// The reason and the end of a drain, the notices of the node, and the faults of its devices.
std::string NoteOf(const v1::Node& node) {
  std::string note = Printable(node.reason());
  if (node.drain_by_unix_ms() > 0)
    note += (note.empty() ? "by " : ", by ") + LocalClock(node.drain_by_unix_ms());
  for (const auto& notice : node.notices()) note += (note.empty() ? "" : "; ") + Printable(notice);
  if (const std::string faults = DeviceFaultsOf(node); !faults.empty())
    note += (note.empty() ? "" : "; ") + faults;
  return note;
}

// "3/8": allocated, of those that can be; fake ones are marked.
std::string GpusOf(const v1::Node& node) {
  const auto& devices = node.inventory().devices();
  if (devices.empty()) return "-";
  const auto usable = std::ranges::count_if(
      devices, [](const v1::Device& device) { return device.fault().empty(); });
  const bool fake = std::ranges::any_of(devices, &v1::Device::fake);
  return std::to_string(node.allocated_size()) + "/" + std::to_string(usable) +
         (fake ? " fake" : "");
}

// "12/64"; "-" if they are not counted.
std::string CpusOf(const v1::Node& node) {
  const int cpus = node.inventory().cpus();
  return cpus == 0 ? "-" : std::to_string(node.cpus_used()) + "/" + std::to_string(cpus);
}

// "8 NVIDIA H100 80GB HBM3", once per kind; fake and shared ones are marked.
std::string GpuKindsOf(const v1::Node& node) {
  std::map<std::string, int> kinds;
  for (const auto& device : node.inventory().devices()) {
    std::string kind = device.kind().empty() ? "GPU" : Printable(device.kind());
    if (device.fake()) kind += " (fake)";
    if (device.shared()) kind += " (shared)";
    ++kinds[kind];
  }
  std::vector<std::string> texts;
  for (const auto& [kind, count] : kinds) texts.push_back(std::to_string(count) + " " + kind);
  return texts.empty() ? "-" : Join(texts);
}

std::string LabelsOf(const v1::Node& node) {
  std::vector<std::string> labels;
  for (const auto& label : node.inventory().labels())
    labels.push_back(Printable(label.key() + "=" + label.value()));
  return labels.empty() ? "-" : Join(labels);
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
    const bool gpus = std::ranges::any_of(
        nodes.nodes(), [](const v1::Node& node) { return node.inventory().devices_size() > 0; });
    std::vector<std::string> headers = {"NAME", "STATE", "ADDRESS", "SLOTS", "USED"};
    if (gpus) headers.push_back("GPUS");
    headers.push_back("PID");
    if (wide)
      headers.insert(headers.end(), {"GPU KIND", "CPUS", "MEMORY", "LABELS", "VERSION", "LAST SEEN",
                                     "DOMAIN", "PILOT"});
    headers.push_back("NOTE");
    Table table(headers);
    for (const auto& node : nodes.nodes()) {
      std::vector<std::string> row = {node.name(), StateWord(node.state()), node.address(),
                                      std::to_string(node.slots()),
                                      std::to_string(node.slots_used())};
      if (gpus) row.push_back(GpusOf(node));
      row.push_back(node.pid() > 0 ? std::to_string(node.pid()) : "-");
      const v1::NodeInventory& has = node.inventory();
      if (wide)
        row.insert(row.end(), {GpuKindsOf(node), CpusOf(node),
                               FormatByteSize(static_cast<std::int64_t>(has.memory_bytes())),
                               LabelsOf(node), node.version(), LocalTime(node.last_seen_unix_ms()),
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
