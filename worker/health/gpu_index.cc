#include "worker/health/gpu_index.h"

#include <algorithm>
#include <filesystem>

namespace muster::worker {

std::string GpuIndex(const std::vector<NodeDevice>& devices, const std::string& pci_address,
                     const std::string& gpus_dir) {
  for (const NodeDevice& one : devices)
    if (one.pci_address.starts_with(pci_address + ".")) return std::to_string(one.gpu_index);
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(gpus_dir, error))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  // The log omits the function number: "0000:3b:00" is "0000:3b:00.0" here.
  const auto at = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return name == pci_address || name.starts_with(pci_address + ".");
  });
  return at == names.end() ? pci_address : std::to_string(at - names.begin());
}

}  // namespace muster::worker
