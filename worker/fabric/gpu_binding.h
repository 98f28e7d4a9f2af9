// Which GPUs a worker may give to its ranks, and whether its settings match the devices.
//
// CUDA_VISIBLE_DEVICES has what was granted, the cgroup what can be opened, NVML what exists, and
// Slurm's variables what was requested. If they differ, a job would fail much later, on one rank,
// with a CUDA error; here one sentence reports it, with what to request. Pure except LookAtGpus;
// any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/fabric/gpu_inventory.h"
#include "worker/fabric/node_devices.h"

namespace muster::worker {

// The input of CheckGpuBinding.
struct GpuView {
  std::optional<std::string> visible;        // CUDA_VISIBLE_DEVICES
  std::map<std::string, std::string> slurm;  // SLURM_*
  std::vector<std::string> device_files;     // numbers of /dev/nvidiaN, "0", "1", ...
  std::vector<std::string> usable_files;     // those that this process may open
  std::optional<GpuInventory> inventory;     // empty: no management library
};

struct GpuBinding {
  // By UUID; a GPU that is divided as its MIG devices. One that cannot be used has a fault. Their
  // NUMA nodes are not known yet.
  std::vector<NodeDevice> devices;
  std::vector<std::string> problems;  // each a sentence with what to do
};

// `node` is part of the ids of GPUs whose UUID is not known ("n1-gpu0"), and of link domains.
GpuBinding CheckGpuBinding(const GpuView& view, const std::string& node);

// `root` is "/", or a tree of a test: its dev/nvidia*. `environment` is ::environ.
GpuView LookAtGpus(const char* const* environment, const std::string& nvml_library,
                   const std::string& root = "/");

}  // namespace muster::worker
