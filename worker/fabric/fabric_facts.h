// Facts about the paths between GPUs from a host's sysfs, devices and environment: adapters, GPUs,
// the switches between them, and the settings of NCCL for them.
//
// ReadFabricFacts reads a tree that is laid out as a root directory: sys/class/infiniband (the
// kernel's Documentation/ABI/stable/sysfs-class-infiniband), sys/class/net, sys/bus/pci/devices,
// sys/module, proc/driver/nvidia, dev/infiniband. It never fails: missing entries are omitted. Some
// milliseconds on a host with eight adapters; any thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace muster::worker {

struct GidEntry {
  int index = 0;
  std::string type;       // "IB/RoCE v1", "RoCE v2"
  bool routable = false;  // made from an address that is not link-local

  friend bool operator==(const GidEntry&, const GidEntry&) = default;
};

struct RdmaPort {
  int number = 1;
  std::string state;       // "ACTIVE", "DOWN", "INIT", ...
  std::string phys_state;  // "LinkUp", "Polling", "Disabled", ...
  std::string link_layer;  // "InfiniBand", "Ethernet"; EFA: "Unknown" or "Unspecified"
  double gbps = 0;
  std::string net_device;  // of RoCE
  std::vector<GidEntry> gids;

  bool active() const { return state == "ACTIVE"; }
};

struct RdmaDevice {
  std::string name;    // "mlx5_0"
  std::string vendor;  // "0x15b3"
  std::string pci_address;
  int numa_node = -1;     // -1: unknown
  bool has_verbs = true;  // its character device is there for this process
  std::vector<RdmaPort> ports;

  bool is_efa() const { return vendor == "0x1d0f"; }
};

struct NetDevice {
  std::string name;
  bool up = false;
  int speed_mbps = 0;  // 0: unknown
  std::string pci_address;
};

struct GpuDevice {
  std::string pci_address;
  int numa_node = -1;

  friend bool operator==(const GpuDevice&, const GpuDevice&) = default;
};

// NVML's data (gpu_inventory.h); zeros if there is none.
struct NvlinkFacts {
  int gpus = 0;          // that were queried
  int active_links = 0;  // of the GPU with the fewest
  std::string clique;    // "CLUSTER/NUMBER" of an NVLink domain of several hosts; empty: none
};

struct FabricFacts {
  std::vector<RdmaDevice> rdma;  // by name
  std::vector<NetDevice> nets;   // by name, without loopback
  std::vector<GpuDevice> gpus;   // NVIDIA's, by PCI address
  int nvswitches = 0;
  NvlinkFacts nvlink;
  bool peermem = false;                        // a module that lets adapters reach GPU memory
  bool open_modules = false;                   // NVIDIA's open kernel modules: memory by dma-buf
  std::vector<std::string> net_plugins;        // files of NCCL's network plug-ins
  bool has_verbs_library = true;               // libibverbs.so.1, without which NCCL takes sockets
  std::map<std::string, std::string> nccl;     // NCCL_*, by name; ReadFabricFacts: of etc/nccl.conf
  std::vector<std::string> socket_interfaces;  // that sockets must use; empty: NCCL chooses
  long long locked_memory_bytes = -1;          // limit of locked memory; -1: none
};

FabricFacts ReadFabricFacts(const std::string& root = "/");

// The NCCL_* variables of a "NAME=value" environment such as ::environ.
std::map<std::string, std::string> NcclVariables(const char* const* environment);

}  // namespace muster::worker
