#include "worker/fabric/node_report.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace muster::worker {
namespace {

// Root may lock any amount.
long long LockedMemory() {
  rlimit limit{};
  if (::geteuid() == 0 || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return -1;
  return limit.rlim_cur == RLIM_INFINITY ? -1 : static_cast<long long>(limit.rlim_cur);
}

int NumaNodeOf(const std::vector<GpuDevice>& gpus, const std::string& pci_address) {
  const auto gpu = std::find_if(gpus.begin(), gpus.end(), [&](const GpuDevice& one) {
    return one.pci_address == pci_address;
  });
  return gpu == gpus.end() ? -1 : gpu->numa_node;
}

}  // namespace

NodeReport LookAtNode(const NodeReportOptions& options) {
  const GpuView view = LookAtGpus(options.environment, options.nvml_library, options.root);
  FabricFacts facts = ReadFabricFacts(options.root);
  // The environment overrides the file, as in NCCL.
  for (const auto& [name, value] : NcclVariables(options.environment)) facts.nccl[name] = value;
  facts.socket_interfaces = options.address.interfaces;
  facts.locked_memory_bytes = LockedMemory();
  if (view.inventory) facts.nvlink = view.inventory->Nvlink();
  NodeReport report{.gpus = CheckGpuBinding(view)};
  for (const std::string& address : report.gpus.pci_addresses)
    report.gpus.numa_nodes.push_back(NumaNodeOf(facts.gpus, address));
  TransportReport transport = MakeTransportReport(facts);
  for (const std::string& problem : report.gpus.problems)
    transport.findings.push_back({.is_problem = true, .text = problem});
  report.lines = transport.Lines();
  report.lines.insert(report.lines.begin(), "address: " + options.address.why);
  report.lines.resize(std::min(report.lines.size(), kMaxTransportLines));
  return report;
}

}  // namespace muster::worker
