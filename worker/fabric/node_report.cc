#include "worker/fabric/node_report.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/text.h"

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

Result<NodeReport> LookAtNode(const NodeReportOptions& options) {
  FabricFacts facts = ReadFabricFacts(options.root);
  GpuBinding binding{.devices = options.fake_gpus};
  if (options.fake_gpus.empty()) {
    const GpuView view = LookAtGpus(options.environment, options.nvml_library, options.root);
    if (view.inventory) facts.nvlink = view.inventory->Nvlink();
    binding = CheckGpuBinding(view, options.node);
    for (NodeDevice& one : binding.devices)
      one.device.numa_node = NumaNodeOf(facts.gpus, one.pci_address);
  } else {
    facts.gpus.clear();
  }
  // The environment overrides the file, as in NCCL.
  for (const auto& [name, value] : NcclVariables(options.environment)) facts.nccl[name] = value;
  facts.socket_interfaces = options.address.interfaces;
  facts.locked_memory_bytes = LockedMemory();
  NodeReport report;
  MUSTER_ASSIGN_OR_RETURN(report.devices,
                          OfferShares(std::move(binding.devices), options.gpu_shares));
  TransportReport transport = MakeTransportReport(facts);
  for (const std::string& problem : binding.problems)
    transport.findings.push_back({.is_problem = true, .text = problem});
  report.lines = transport.Lines();
  const std::string gpus = DescribeDevices(report.devices);
  if (!gpus.empty())
    report.lines.insert(report.lines.begin() + (transport.within_node.empty() ? 1 : 2),
                        CutText("GPUs: " + gpus, kMaxTransportLineBytes));
  report.lines.insert(report.lines.begin(), "address: " + options.address.why);
  report.lines.resize(std::min(report.lines.size(), kMaxTransportLines));
  return report;
}

}  // namespace muster::worker
