// Which GPUs a worker may give to its ranks, and whether what it was told fits to what it sees.
//
// CUDA_VISIBLE_DEVICES says what was granted, the cgroup what can be opened, NVML what is there,
// and Slurm's variables what was asked for. Where they differ a job would fail much later, on one
// rank, with an error of CUDA's; here it is said in a sentence, with what to ask for. Pure but for
// LookAtGpus; any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/fabric/gpu_inventory.h"

namespace muster::worker {

// What CheckGpuBinding goes by.
struct GpuView {
  std::optional<std::string> visible;        // CUDA_VISIBLE_DEVICES
  std::map<std::string, std::string> slurm;  // SLURM_*
  std::vector<std::string> device_files;     // numbers of /dev/nvidiaN, "0", "1", ...
  std::vector<std::string> usable_files;     // those that this process may open
  std::optional<GpuInventory> inventory;     // nothing: no management library
};

struct GpuBinding {
  // As CUDA_VISIBLE_DEVICES names them, UUIDs and parts of GPUs as they were given; rank number r
  // of the node gets the one at r modulo their number.
  std::vector<std::string> devices;
  std::vector<std::string> pci_addresses;  // of each; empty: not known
  std::vector<int> numa_nodes;             // of each; -1: not known
  std::vector<std::string> problems;       // what does not fit, each a sentence with what to do
};

GpuBinding CheckGpuBinding(const GpuView& view);

// `root` is "/", or a tree of a test: its dev/nvidia*. `environment` is ::environ.
GpuView LookAtGpus(const char* const* environment, const std::string& nvml_library,
                   const std::string& root = "/");

}  // namespace muster::worker
