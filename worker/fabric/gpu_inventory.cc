#include "worker/fabric/gpu_inventory.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <set>

#include "common/base/strings.h"
#include "worker/fabric/nvml_abi.h"

namespace muster::worker {
namespace {

constexpr std::size_t kTextBytes = 96;  // of a UUID or a name
constexpr unsigned kMaxLinks = 18;      // of a Hopper; Blackwell has as many

struct Api {
  nvml::Init init = nullptr;
  nvml::Shutdown shutdown = nullptr;
  nvml::DeviceCount device_count = nullptr;
  nvml::DeviceByIndex device_by_index = nullptr;
  nvml::DeviceText uuid = nullptr;
  nvml::DevicePciInfo pci_info = nullptr;
  // May be missing in old drivers.
  nvml::DeviceText name = nullptr;
  nvml::MemoryInfo memory = nullptr;
  nvml::NvlinkState nvlink_state = nullptr;
  nvml::NvlinkPeer nvlink_peer = nullptr;
  nvml::FabricInfo fabric_info = nullptr;
  nvml::MaxMigDevices max_mig_devices = nullptr;
  nvml::MigDeviceByIndex mig_device_by_index = nullptr;
};

template <typename Function>
bool Load(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

Result<Api> LoadApi(void* library) {
  Api api;
  const bool complete = Load(library, "nvmlInit_v2", &api.init) &&
                        Load(library, "nvmlShutdown", &api.shutdown) &&
                        Load(library, "nvmlDeviceGetCount_v2", &api.device_count) &&
                        Load(library, "nvmlDeviceGetHandleByIndex_v2", &api.device_by_index) &&
                        Load(library, "nvmlDeviceGetUUID", &api.uuid) &&
                        Load(library, "nvmlDeviceGetPciInfo_v3", &api.pci_info);
  if (!complete)
    return Unimplemented("the GPU management library lacks functions; a newer driver has them");
  Load(library, "nvmlDeviceGetName", &api.name);
  Load(library, "nvmlDeviceGetMemoryInfo", &api.memory);
  Load(library, "nvmlDeviceGetNvLinkState", &api.nvlink_state);
  Load(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", &api.nvlink_peer);
  Load(library, "nvmlDeviceGetGpuFabricInfo", &api.fabric_info);
  Load(library, "nvmlDeviceGetMaxMigDeviceCount", &api.max_mig_devices);
  Load(library, "nvmlDeviceGetMigDeviceHandleByIndex", &api.mig_device_by_index);
  return api;
}

std::string TextOf(nvml::DeviceText ask, nvml::Device device) {
  char text[kTextBytes] = {};
  return ask != nullptr && ask(device, text, sizeof text) == nvml::kSuccess ? text : "";
}

std::uint64_t MemoryOf(const Api& api, nvml::Device device) {
  nvml::Memory memory{};
  const bool known = api.memory != nullptr && api.memory(device, &memory) == nvml::kSuccess;
  return known ? memory.total : 0;
}

// The kernel's form of "00000000:3B:00.0".
std::string KernelPciAddress(const char* bus_id) {
  std::string text = bus_id;
  if (text.size() > 12) text = text.substr(text.size() - 12);
  return AsciiLower(std::move(text));
}

void AddLinks(const Api& api, nvml::Device device, Gpu* gpu) {
  if (api.nvlink_state == nullptr) return;
  std::set<std::string> peers;
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    unsigned active = 0;
    if (api.nvlink_state(device, link, &active) != nvml::kSuccess || active == 0) continue;
    ++gpu->active_links;
    nvml::PciInfo pci{};
    if (api.nvlink_peer != nullptr && api.nvlink_peer(device, link, &pci) == nvml::kSuccess)
      peers.insert(KernelPciAddress(pci.bus_id));
  }
  gpu->link_peers = {peers.begin(), peers.end()};
}

// "CLUSTER/CLIQUE" once the fabric manager has joined the GPU to a domain of several hosts; those
// within one host have a cluster of zeros.
std::string CliqueOf(const Api& api, nvml::Device device) {
  nvml::GpuFabricInfo info{};
  if (api.fabric_info == nullptr || api.fabric_info(device, &info) != nvml::kSuccess ||
      info.state != nvml::kFabricCompleted || info.status != nvml::kSuccess)
    return "";
  std::string cluster;
  for (const unsigned char byte : info.cluster_uuid) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    cluster += digits;
  }
  if (cluster.find_first_not_of('0') == std::string::npos) return "";
  return cluster + "/" + std::to_string(info.clique_id);
}

std::vector<GpuPart> PartsOf(const Api& api, nvml::Device device) {
  std::vector<GpuPart> parts;
  unsigned count = 0;
  if (api.max_mig_devices == nullptr || api.mig_device_by_index == nullptr ||
      api.max_mig_devices(device, &count) != nvml::kSuccess)
    return parts;
  for (unsigned i = 0; i < count; ++i) {
    nvml::Device part = nullptr;
    if (api.mig_device_by_index(device, i, &part) != nvml::kSuccess) continue;
    GpuPart one{.uuid = TextOf(api.uuid, part),
                .kind = TextOf(api.name, part),
                .memory_bytes = MemoryOf(api, part)};
    if (!one.uuid.empty()) parts.push_back(std::move(one));
  }
  return parts;
}

Gpu AskOne(const Api& api, unsigned index) {
  Gpu gpu{.index = static_cast<int>(index)};
  nvml::Device device = nullptr;
  char uuid[kTextBytes] = {};
  nvml::Return code = api.device_by_index(index, &device);
  if (code == nvml::kSuccess) code = api.uuid(device, uuid, sizeof uuid);
  if (code != nvml::kSuccess) {
    gpu.permitted = false;
    if (code != nvml::kNoPermission) gpu.error = code;
    return gpu;
  }
  gpu.uuid = uuid;
  gpu.kind = TextOf(api.name, device);
  gpu.memory_bytes = MemoryOf(api, device);
  nvml::PciInfo pci{};
  if (api.pci_info(device, &pci) == nvml::kSuccess) gpu.pci_address = KernelPciAddress(pci.bus_id);
  AddLinks(api, device, &gpu);
  gpu.parts = PartsOf(api, device);
  gpu.clique = CliqueOf(api, device);
  return gpu;
}

struct CloseLibrary {
  void operator()(void* library) const { ::dlclose(library); }
};

}  // namespace

NvlinkFacts GpuInventory::Nvlink() const {
  NvlinkFacts facts;
  for (const Gpu& gpu : gpus) {
    if (!gpu.permitted) continue;
    const bool first = facts.gpus == 0;
    facts.active_links = first ? gpu.active_links : std::min(facts.active_links, gpu.active_links);
    facts.clique = first || gpu.clique == facts.clique ? gpu.clique : "";
    ++facts.gpus;
  }
  return facts;
}

Result<GpuInventory> ReadGpuInventory(const std::string& library) {
  const std::unique_ptr<void, CloseLibrary> handle(
      ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!handle) return NotFound(std::string("no GPU management library: ") + ::dlerror());
  MUSTER_ASSIGN_OR_RETURN(const Api api, LoadApi(handle.get()));
  if (const nvml::Return code = api.init(); code != nvml::kSuccess)
    return Unavailable("the GPU management library cannot start: error " + std::to_string(code));
  unsigned count = 0;
  const nvml::Return code = api.device_count(&count);
  GpuInventory inventory;
  for (unsigned index = 0; code == nvml::kSuccess && index < count; ++index)
    inventory.gpus.push_back(AskOne(api, index));
  api.shutdown();
  if (code != nvml::kSuccess)
    return Unavailable("the GPU management library cannot count GPUs: error " +
                       std::to_string(code));
  return inventory;
}

const Gpu* FindGpu(const std::vector<Gpu>& gpus, const std::string& entry) {
  const bool number = !entry.empty() && entry.find_first_not_of("0123456789") == std::string::npos;
  int allowed = 0;
  for (const Gpu& gpu : gpus)
    if (number && (gpu.permitted || gpu.error != 0) && std::to_string(allowed++) == entry)
      return &gpu;
  for (const Gpu& gpu : gpus) {
    if (number && std::to_string(gpu.index) == entry) return &gpu;
    if (gpu.uuid.empty() || number) continue;
    if (entry.starts_with("GPU-") && gpu.uuid.starts_with(entry)) return &gpu;
    // Before driver 470 a part was named by its GPU: "MIG-GPU-8a0e.../1/0".
    if (entry.starts_with("MIG-" + gpu.uuid + "/")) return &gpu;
    const auto is_it = [&](const GpuPart& part) {
      return entry.starts_with("MIG-") && part.uuid.starts_with(entry);
    };
    if (std::any_of(gpu.parts.begin(), gpu.parts.end(), is_it)) return &gpu;
  }
  return nullptr;
}

std::vector<std::string> LinkDomains(const std::vector<Gpu>& gpus, const std::string& node) {
  // The GPU with the lowest place of each island, found by joining islands until nothing changes.
  std::vector<std::size_t> island(gpus.size());
  std::iota(island.begin(), island.end(), std::size_t{0});
  const auto joined = [&](std::size_t a, std::size_t b) {
    if (gpus[a].active_links == 0 || gpus[b].active_links == 0) return false;
    // A virtual machine may not show what is at the other ends: switches.
    if (gpus[a].link_peers.empty() && gpus[b].link_peers.empty()) return true;
    const auto has = [](const Gpu& gpu, const std::string& peer) {
      return std::ranges::find(gpu.link_peers, peer) != gpu.link_peers.end();
    };
    return has(gpus[a], gpus[b].pci_address) ||
           std::ranges::any_of(gpus[a].link_peers,
                               [&](const std::string& peer) { return has(gpus[b], peer); });
  };
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (std::size_t other = 0; other < i; ++other) {
      if (!joined(i, other)) continue;
      const std::size_t low = std::min(island[i], island[other]);
      const std::size_t high = std::max(island[i], island[other]);
      std::replace(island.begin(), island.end(), high, low);
    }
  }
  std::vector<std::string> domains;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const bool alone = std::ranges::count(island, island[i]) == 1;
    domains.push_back(!gpus[i].clique.empty() ? gpus[i].clique
                      : alone                 ? ""
                                              : node + "/nvlink" + std::to_string(island[i]));
  }
  return domains;
}

}  // namespace muster::worker
