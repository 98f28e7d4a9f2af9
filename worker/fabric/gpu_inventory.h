// The GPUs of this node from NVIDIA's management library, which is loaded at run time if there is
// one. Takes some milliseconds to a second; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "worker/fabric/fabric_facts.h"

namespace muster::worker {

// A MIG device.
struct GpuPart {
  std::string uuid;  // "MIG-..."
  std::string kind;  // "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
  std::uint64_t memory_bytes = 0;

  friend bool operator==(const GpuPart&, const GpuPart&) = default;
};

struct Gpu {
  int index = 0;            // in the order of PCI addresses, as in Slurm
  std::string uuid;         // "GPU-8a0e..."
  std::string kind;         // "NVIDIA H100 80GB HBM3"
  std::string pci_address;  // "0000:3b:00.0"
  std::uint64_t memory_bytes = 0;
  std::vector<GpuPart> parts;           // if it is divided
  int active_links = 0;                 // NVLink
  std::vector<std::string> link_peers;  // PCI addresses of the GPUs and switches at their ends
  std::string clique;                   // "CLUSTER/NUMBER" as NvlinkFacts::clique; empty: none
  bool permitted = true;                // false: this process can not use it
  int error = 0;  // NVML's reason, if it is not the cgroup: for example, the GPU is lost

  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct GpuInventory {
  std::vector<Gpu> gpus;

  NvlinkFacts Nvlink() const;
};

// kNotFound: there is no such library; other errors name what cannot be used.
Result<GpuInventory> ReadGpuInventory(const std::string& library);

// The GPU that an entry of CUDA_VISIBLE_DEVICES means: its number, for which CUDA counts those that
// the cgroup allows; its UUID or a prefix of it, or a MIG device ("MIG-...", "MIG-GPU-.../1/0"). A
// number that is too high for that is the index of one that is not allowed. Null: none of them.
const Gpu* FindGpu(const std::vector<Gpu>& gpus, const std::string& entry);

// Device::link_domain of each: the clique, else a name below that of the node for those that NVLink
// joins, by way of switches too. Pure.
std::vector<std::string> LinkDomains(const std::vector<Gpu>& gpus, const std::string& node);

}  // namespace muster::worker
