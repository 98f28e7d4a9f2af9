#include "worker/fabric/cpu_topology.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include "worker/fabric/sysfs.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

// The kernel's own limit of processors.
constexpr int kMaxCpus = 8192;

// The NUMA node of each processor; 0 on a host without nodes.
std::map<int, int> NodesOfCpus(const fs::path& root) {
  std::map<int, int> nodes;
  for (const fs::path& entry : SortedEntries(root / "sys/devices/system/node")) {
    const std::string name = entry.filename().string();
    if (!name.starts_with("node")) continue;
    const auto node = static_cast<int>(ParseNumber(name.substr(4), -1));
    if (node < 0) continue;
    for (const int cpu : ParseCpuList(ReadSysfs(entry / "cpulist"))) nodes[cpu] = node;
  }
  return nodes;
}

}  // namespace

int CpuTopology::cpus() const {
  int count = 0;
  for (const Core& core : cores) count += static_cast<int>(core.cpus.size());
  return count;
}

std::vector<int> ParseCpuList(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    int first = -1;
    const char* const end = part.data() + part.size();
    auto parsed = std::from_chars(part.data(), end, first);
    int last = first;
    if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    }
    const bool whole = parsed.ec == std::errc() && parsed.ptr == end;
    if (!whole || first < 0 || last < first || last >= kMaxCpus) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

std::string FormatCpuList(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (last > i) text += "-" + std::to_string(cpus[last]);
    i = last + 1;
  }
  return text;
}

CpuTopology ReadCpuTopology(const std::vector<int>& allowed, const std::string& root) {
  const std::map<int, int> nodes = NodesOfCpus(root);
  std::map<std::pair<int, int>, Core> cores;  // by node and first thread
  for (const int cpu : allowed) {
    const fs::path topology =
        fs::path(root) / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology";
    std::vector<int> siblings = ParseCpuList(ReadSysfs(topology / "thread_siblings_list"));
    if (siblings.empty()) siblings = {cpu};
    const auto node = nodes.find(cpu);
    const int number = node == nodes.end() ? 0 : node->second;
    Core& core = cores[{number, siblings.front()}];
    core.node = number;
    core.cpus.push_back(cpu);
  }
  CpuTopology topology;
  for (auto& [key, core] : cores) topology.cores.push_back(std::move(core));
  return topology;
}

}  // namespace muster::worker
