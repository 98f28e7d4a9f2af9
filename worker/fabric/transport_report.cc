#include "worker/fabric/transport_report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "common/base/text.h"
#include "worker/fabric/nccl_filter.h"

namespace muster::worker {
namespace {

using Findings = std::vector<TransportFinding>;

// Below this a port that only sockets use is the bottleneck of any gang that shares gradients.
constexpr int kSlowSocketMbps = 25'000;
// What an adapter locks for one communicator; distributions allow users 8 MiB or less.
constexpr long long kLockedMemoryNeeded = 1LL << 30;

struct Port {
  const RdmaDevice* device;
  const RdmaPort* port;
};

std::string Value(const FabricFacts& facts, const std::string& name) {
  const auto it = facts.nccl.find(name);
  return it == facts.nccl.end() ? "" : it->second;
}

bool IsOn(const FabricFacts& facts, const std::string& name) {
  return std::atoi(Value(facts, name).c_str()) != 0;
}

void Problem(Findings* findings, const std::string& text) { findings->push_back({true, text}); }
void Note(Findings* findings, const std::string& text) { findings->push_back({false, text}); }

std::string Gbps(double gbps) {
  const auto whole = static_cast<long long>(std::llround(gbps));
  return gbps == static_cast<double>(whole) ? std::to_string(whole)
                                            : std::to_string(gbps).substr(0, 5);
}

std::string PortName(const Port& one) {
  return one.device->name +
         (one.device->ports.size() > 1 ? " port " + std::to_string(one.port->number) : "");
}

// "mlx5_0", "mlx5_0 and mlx5_1", "mlx5_0 to mlx5_7".
std::string Names(const std::vector<Port>& ports) {
  if (ports.size() == 1) return PortName(ports.front());
  return PortName(ports.front()) + (ports.size() == 2 ? " and " : " to ") + PortName(ports.back());
}

// "8 ports of 200 Gb/s (mlx5_0 to mlx5_7)".
std::string PortSummary(const std::vector<Port>& ports) {
  const double gbps = ports.front().port->gbps;
  const bool even = std::all_of(ports.begin(), ports.end(),
                                [&](const Port& one) { return one.port->gbps == gbps; });
  double least = gbps, most = gbps;
  for (const Port& one : ports) {
    least = std::min(least, one.port->gbps);
    most = std::max(most, one.port->gbps);
  }
  return std::to_string(ports.size()) + (ports.size() == 1 ? " port of " : " ports of ") +
         (even ? Gbps(gbps) : Gbps(least) + " to " + Gbps(most)) + " Gb/s (" + Names(ports) + ")";
}

// Why a port is not active, and what to do.
std::string WhyDown(const Port& one) {
  const RdmaPort& port = *one.port;
  const std::string begin = PortName(one) + " is " + port.state + " (physical state " +
                            (port.phys_state.empty() ? "unknown" : port.phys_state) +
                            "), and NCCL leaves it out: ";
  if (port.link_layer == "Ethernet") {
    return begin + "check its cable and switch port, and that its network interface" +
           (port.net_device.empty() ? "" : " " + port.net_device) + " is up (ip link set up)";
  }
  if (port.phys_state == "LinkUp")
    return begin +
           "the cable is in, but no subnet manager has configured the port; start one (opensm, or "
           "the switch's) or ask your administrator";
  if (port.phys_state == "Disabled") return begin + "enable it (ibportstate, or the switch)";
  return begin + "check its cable, the transceiver and the switch port";
}

// Problems in the table of a RoCE port.
void CheckGids(const FabricFacts& facts, const Port& one, Findings* findings) {
  const RdmaPort& port = *one.port;
  const std::string name = "RoCE device " + PortName(one);
  const std::string interface = port.net_device.empty() ? "its network interface" : port.net_device;
  const auto is_v2 = [](const GidEntry& gid) { return gid.type == "RoCE v2"; };
  const std::string wanted = Value(facts, "NCCL_IB_GID_INDEX");
  if (!wanted.empty() && std::atoi(wanted.c_str()) >= 0) {
    const int index = std::atoi(wanted.c_str());
    const auto gid = std::find_if(port.gids.begin(), port.gids.end(),
                                  [&](const GidEntry& entry) { return entry.index == index; });
    if (gid == port.gids.end())
      Problem(findings, name + " has no entry " + wanted +
                            " in its GID table, which NCCL_IB_GID_INDEX asks for: unset the "
                            "variable, NCCL 2.21 and later finds the right one itself");
    else if (!is_v2(*gid))
      Problem(findings, name + ": NCCL_IB_GID_INDEX=" + wanted + " names an entry of type " +
                            gid->type + ", which is not routed; unset the variable");
    return;
  }
  if (std::none_of(port.gids.begin(), port.gids.end(), is_v2)) {
    Problem(findings, name + " is up but its GID table has no RoCE v2 entry: give " + interface +
                          " an IP address (ip addr add), from which the driver makes one");
  } else if (std::none_of(port.gids.begin(), port.gids.end(),
                          [&](const GidEntry& gid) { return is_v2(gid) && gid.routable; })) {
    Problem(findings, name +
                          " has RoCE v2 entries for link-local addresses only, which reach no "
                          "further than the next switch: give " +
                          interface + " an address that is routed");
  }
}

// --- between nodes ---

struct Choice {
  std::string text;
  bool rdma = false;
  bool sockets = false;
};

Choice ChooseSockets(const FabricFacts& facts, const std::string& why, Findings* findings) {
  std::vector<const NetDevice*> used;
  const std::string variable = Value(facts, "NCCL_SOCKET_IFNAME");
  for (const NetDevice& net : facts.nets) {
    const bool named = variable.empty() ? facts.socket_interfaces.empty() ||
                                              std::find(facts.socket_interfaces.begin(),
                                                        facts.socket_interfaces.end(),
                                                        net.name) != facts.socket_interfaces.end()
                                        : NcclFilter(variable).Takes(net.name);
    if (net.up && named) used.push_back(&net);
  }
  std::string text;
  int fastest = 0;
  for (const NetDevice* net : used) {
    text += (text.empty() ? "" : ", ") + net->name +
            (net->speed_mbps > 0 ? " at " + Gbps(net->speed_mbps / 1000.0) + " Gb/s" : "");
    fastest = std::max(fastest, net->speed_mbps);
  }
  if (used.empty() && !variable.empty())
    Problem(findings, "NCCL_SOCKET_IFNAME=" + variable +
                          " names no interface that is up here: NCCL will not start; unset it, or "
                          "start the worker with --interface");
  if (fastest > 0 && fastest < kSlowSocketMbps)
    Note(findings, "sockets at " + Gbps(fastest / 1000.0) +
                       " Gb/s: a gang over several nodes will wait for its gradients most of the "
                       "time; LoRA, train.batch.accumulation or fsdp.strategy hybrid_shard send "
                       "less");
  return {.text = "sockets" + (text.empty() ? "" : " over " + text) + ": " + why, .sockets = true};
}

Choice ChooseEfa(const FabricFacts& facts, const std::vector<Port>& ports, Findings* findings) {
  if (facts.net_plugins.empty()) {
    Problem(findings,
            "there are EFA devices, but no plug-in by which NCCL uses them: install aws-ofi-nccl "
            "(Amazon's EFA installer has it) and put its folder on LD_LIBRARY_PATH in the job's "
            "env");
    return ChooseSockets(facts, "NCCL has no plug-in for EFA", findings);
  }
  return {.text = "EFA, " + PortSummary(ports) + ", by " + facts.net_plugins.front(), .rdma = true};
}

std::vector<Port> ActivePorts(const FabricFacts& facts, bool efa, Findings* findings) {
  const std::string filter = Value(facts, "NCCL_IB_HCA");
  std::vector<Port> active;
  int filtered = 0;
  for (const RdmaDevice& device : facts.rdma) {
    if (device.is_efa() != efa) continue;
    for (const RdmaPort& port : device.ports) {
      const Port one{&device, &port};
      if (!efa && !NcclFilter(filter).TakesPort(device.name, port.number)) {
        ++filtered;
      } else if (port.active() && device.has_verbs) {
        active.push_back(one);
      } else if (port.active()) {
        Problem(findings, device.name +
                              " is up, but its character device is not below /dev/infiniband here: "
                              "give the container the folder (--device /dev/infiniband)");
      } else {
        Problem(findings, WhyDown(one));
      }
    }
  }
  if (filtered > 0)
    Note(findings, "NCCL_IB_HCA=" + filter + " leaves out " + std::to_string(filtered) +
                       (filtered == 1 ? " port" : " ports"));
  if (filtered > 0 && active.empty())
    Problem(findings, "NCCL_IB_HCA=" + filter +
                          " leaves no active port: unset it, or name an adapter that is there");
  return active;
}

void CheckRates(const std::vector<Port>& ports, Findings* findings) {
  const double gbps = ports.front().port->gbps;
  const auto slower =
      std::min_element(ports.begin(), ports.end(),
                       [](const Port& a, const Port& b) { return a.port->gbps < b.port->gbps; });
  const bool uneven = std::any_of(ports.begin(), ports.end(),
                                  [&](const Port& one) { return one.port->gbps != gbps; });
  if (uneven)
    Problem(findings, "ports of different rates: " + PortName(*slower) + " has " +
                          Gbps(slower->port->gbps) +
                          " Gb/s only and holds up the others; check its cable, or leave it out "
                          "with NCCL_IB_HCA=^=" +
                          slower->device->name);
}

void CheckLockedMemory(const FabricFacts& facts, Findings* findings) {
  const bool limited =
      facts.locked_memory_bytes >= 0 && facts.locked_memory_bytes < kLockedMemoryNeeded;
  if (limited)
    Problem(findings, "only " + std::to_string(facts.locked_memory_bytes >> 10) +
                          " KiB of memory may be locked, and adapters need all that they send: set "
                          "the limit memlock to unlimited for this user (ulimit -l; Slurm: "
                          "PropagateResourceLimitsExcept=MEMLOCK)");
}

Choice ChooseIb(const FabricFacts& facts, const std::vector<Port>& ports, Findings* findings) {
  std::vector<Port> infiniband, roce;
  for (const Port& one : ports)
    (one.port->link_layer == "Ethernet" ? roce : infiniband).push_back(one);
  for (const Port& one : roce) CheckGids(facts, one, findings);
  CheckLockedMemory(facts, findings);
  if (infiniband.empty() || roce.empty())
    CheckRates(ports, findings);
  else
    Problem(findings, "InfiniBand (" + Names(infiniband) + ") and RoCE (" + Names(roce) +
                          ") are both up, and NCCL takes them as one network, which they are not: "
                          "name those of one with NCCL_IB_HCA, such as NCCL_IB_HCA==" +
                          infiniband.front().device->name);
  std::string text;
  if (!infiniband.empty()) text = "InfiniBand, " + PortSummary(infiniband);
  if (!roce.empty()) text += (text.empty() ? "" : " and ") + ("RoCE, " + PortSummary(roce));
  return {.text = text, .rdma = true};
}

Choice ChooseBetweenNodes(const FabricFacts& facts, Findings* findings) {
  const std::string net = Value(facts, "NCCL_NET");
  if (net == "Socket") return ChooseSockets(facts, "NCCL_NET=Socket says so", findings);
  const bool any_efa = std::any_of(facts.rdma.begin(), facts.rdma.end(),
                                   [](const RdmaDevice& one) { return one.is_efa(); });
  if (any_efa && net != "IB") {
    const std::vector<Port> efa = ActivePorts(facts, true, findings);
    if (!efa.empty()) return ChooseEfa(facts, efa, findings);
  }
  if (IsOn(facts, "NCCL_IB_DISABLE"))
    return ChooseSockets(facts, "NCCL_IB_DISABLE is set", findings);
  const std::vector<Port> ports = ActivePorts(facts, false, findings);
  if (ports.empty())
    return ChooseSockets(
        facts, facts.rdma.empty() ? "there is no RDMA adapter" : "no RDMA port can be used",
        findings);
  if (!facts.has_verbs_library) {
    Problem(findings,
            "libibverbs.so.1 is not installed, and NCCL cannot use the adapters without "
            "it: install rdma-core (libibverbs1 and ibverbs-providers)");
    return ChooseSockets(facts, "libibverbs.so.1 is missing", findings);
  }
  return ChooseIb(facts, ports, findings);
}

void CheckGpuDirect(const FabricFacts& facts, Findings* findings) {
  if (facts.gpus.empty()) return;
  const std::string level = Value(facts, "NCCL_NET_GDR_LEVEL");
  if (level == "LOC" || level == "0") {
    Problem(findings, "NCCL_NET_GDR_LEVEL=" + level +
                          " keeps adapters from reaching GPU memory: every byte passes through the "
                          "host's; unset it");
    return;
  }
  if (facts.peermem || facts.open_modules) return;
  Problem(findings,
          "neither nvidia_peermem is loaded nor are NVIDIA's open kernel modules, which hand out "
          "GPU memory by dma-buf: every byte passes through the host's memory; modprobe "
          "nvidia_peermem");
}

// --- within the node ---

std::string ChooseWithinNode(const FabricFacts& facts, Findings* findings) {
  const std::size_t gpus = facts.gpus.size();
  if (gpus < 2) return "";
  const bool no_peers = IsOn(facts, "NCCL_P2P_DISABLE");
  if (no_peers)
    Problem(findings,
            "NCCL_P2P_DISABLE is set: GPUs of this node speak by way of its memory; unset "
            "it unless you look for a fault");
  if (IsOn(facts, "NCCL_SHM_DISABLE"))
    Problem(findings,
            "NCCL_SHM_DISABLE is set: ranks of this node that are not peers use the "
            "network; unset it unless you look for a fault");
  if (no_peers) return "shared memory, since NCCL_P2P_DISABLE is set";
  if (facts.nvlink.active_links > 0)
    return "NVLink, " + std::to_string(facts.nvlink.active_links) + " links on each of " +
           std::to_string(facts.nvlink.gpus) + " GPUs" +
           (facts.nvlink.clique.empty() ? "" : ", NVLink domain " + facts.nvlink.clique);
  if (facts.nvswitches > 0) {
    if (facts.nvlink.gpus > 0)
      Problem(findings,
              "there are NVSwitches, but a GPU has no active NVLink: see that "
              "nvidia-fabricmanager runs (systemctl status nvidia-fabricmanager)");
    else
      return "NVLink by " + std::to_string(facts.nvswitches) + " NVSwitches";
  }
  return "PCIe, " + std::to_string(gpus) + " GPUs";
}

}  // namespace

std::vector<std::string> TransportReport::Lines() const {
  std::vector<std::string> lines = {"between nodes: " + between_nodes};
  if (!within_node.empty()) lines.push_back("within the node: " + within_node);
  for (const bool problems : {true, false})
    for (const TransportFinding& finding : findings)
      if (finding.is_problem == problems)
        lines.push_back((problems ? "problem: " : "note: ") + finding.text);
  if (lines.size() > kMaxTransportLines) {
    const std::size_t left_out = lines.size() - kMaxTransportLines + 1;
    lines.resize(kMaxTransportLines - 1);
    lines.push_back("note: " + std::to_string(left_out) + " more findings");
  }
  for (std::string& line : lines) line = CutText(std::move(line), kMaxTransportLineBytes);
  return lines;
}

int TransportReport::problems() const {
  return static_cast<int>(std::count_if(findings.begin(), findings.end(),
                                        [](const auto& finding) { return finding.is_problem; }));
}

TransportReport MakeTransportReport(const FabricFacts& facts) {
  TransportReport report;
  const Choice choice = ChooseBetweenNodes(facts, &report.findings);
  report.between_nodes = choice.text;
  if (choice.rdma) CheckGpuDirect(facts, &report.findings);
  report.within_node = ChooseWithinNode(facts, &report.findings);
  return report;
}

}  // namespace muster::worker
