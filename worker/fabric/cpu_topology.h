// The processors that this process may use, by core and by NUMA node, from sysfs
// (Documentation/admin-guide/cputopology.rst of the kernel) and the affinity that cgroups and Slurm
// leave it. Free functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster::worker {

struct Core {
  std::vector<int> cpus;  // the threads of one core that are allowed, ascending
  int node = 0;

  friend bool operator==(const Core&, const Core&) = default;
};

struct CpuTopology {
  std::vector<Core> cores;  // by NUMA node, then by their first processor

  int cpus() const;
};

// "0-3,8" and back. Invalid lists are empty.
std::vector<int> ParseCpuList(std::string_view text);
std::string FormatCpuList(const std::vector<int>& cpus);

// The allowed processors only. A host whose sysfs has no cores gets one per processor.
CpuTopology ReadCpuTopology(const std::vector<int>& allowed, const std::string& root = "/");

}  // namespace muster::worker
