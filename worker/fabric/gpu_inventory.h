// The GPUs of this node from NVIDIA's management library, which is loaded at run time if there is
// one. Takes some milliseconds to a second; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "worker/fabric/fabric_facts.h"

namespace muster::worker {

struct Gpu {
  int index = 0;                       // in the order of PCI addresses, as in Slurm
  std::string uuid;                    // "GPU-8a0e..."
  std::string pci_address;             // "0000:3b:00.0"
  std::vector<std::string> mig_uuids;  // of its MIG devices, if any
  int active_links = 0;                // NVLink
  bool permitted = true;               // false: this process can not use it
  int error = 0;  // NVML's reason, if it is not the cgroup: for example, the GPU is lost

  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct GpuInventory {
  std::vector<Gpu> gpus;
  std::string clique;  // NvlinkFacts::clique, the same for all GPUs

  NvlinkFacts Nvlink() const;
};

// kNotFound: there is no such library; other errors name what cannot be used.
Result<GpuInventory> ReadGpuInventory(const std::string& library);

// The GPU that an entry of CUDA_VISIBLE_DEVICES means: its index, its UUID or a prefix of it, or a
// MIG device ("MIG-...", "MIG-GPU-.../1/0"). Null: none of them.
const Gpu* FindGpu(const std::vector<Gpu>& gpus, const std::string& entry);

}  // namespace muster::worker
