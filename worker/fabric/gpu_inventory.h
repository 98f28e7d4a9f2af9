// The GPUs of this node as NVIDIA's management library tells them, which is loaded at run time
// where there is one. Takes some milliseconds to a second; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "worker/fabric/fabric_facts.h"

namespace muster::worker {

struct Gpu {
  int index = 0;                       // in the order of PCI addresses, as Slurm counts too
  std::string uuid;                    // "GPU-8a0e..."
  std::string pci_address;             // "0000:3b:00.0"
  std::vector<std::string> mig_uuids;  // of its parts, where it is cut into some
  int active_links = 0;                // NVLink
  bool permitted = true;               // false: this process can not use it
  int error = 0;  // NVML's, why not, where the cgroup is not the reason: it is lost, say

  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct GpuInventory {
  std::vector<Gpu> gpus;
  std::string clique;  // NvlinkFacts::clique, the same for all GPUs

  NvlinkFacts Nvlink() const;
};

// kNotFound: there is no such library; other errors say what of it cannot be used.
Result<GpuInventory> ReadGpuInventory(const std::string& library);

// The GPU that an entry of CUDA_VISIBLE_DEVICES means: its index, its UUID or a beginning of that,
// or a part's ("MIG-...", "MIG-GPU-.../1/0"). Null: none of them.
const Gpu* FindGpu(const std::vector<Gpu>& gpus, const std::string& entry);

}  // namespace muster::worker
