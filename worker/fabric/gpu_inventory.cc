#include "worker/fabric/gpu_inventory.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "common/base/strings.h"
#include "worker/fabric/nvml_abi.h"

namespace muster::worker {
namespace {

constexpr std::size_t kUuidBytes = 96;
constexpr unsigned kMaxLinks = 18;  // of a Hopper; Blackwell has as many

struct Api {
  nvml::Init init = nullptr;
  nvml::Shutdown shutdown = nullptr;
  nvml::DeviceCount device_count = nullptr;
  nvml::DeviceByIndex device_by_index = nullptr;
  nvml::DeviceUuid uuid = nullptr;
  nvml::DevicePciInfo pci_info = nullptr;
  // May be missing in old drivers.
  nvml::NvlinkState nvlink_state = nullptr;
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
  Load(library, "nvmlDeviceGetNvLinkState", &api.nvlink_state);
  Load(library, "nvmlDeviceGetGpuFabricInfo", &api.fabric_info);
  Load(library, "nvmlDeviceGetMaxMigDeviceCount", &api.max_mig_devices);
  Load(library, "nvmlDeviceGetMigDeviceHandleByIndex", &api.mig_device_by_index);
  return api;
}

std::string UuidOf(const Api& api, nvml::Device device) {
  char text[kUuidBytes] = {};
  return api.uuid(device, text, sizeof text) == nvml::kSuccess ? text : "";
}

// The kernel's form of "00000000:3B:00.0".
std::string KernelPciAddress(const char* bus_id) {
  std::string text = bus_id;
  if (text.size() > 12) text = text.substr(text.size() - 12);
  return AsciiLower(std::move(text));
}

int ActiveLinks(const Api& api, nvml::Device device) {
  if (api.nvlink_state == nullptr) return 0;
  int active_links = 0;
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    unsigned active = 0;
    if (api.nvlink_state(device, link, &active) == nvml::kSuccess && active != 0) ++active_links;
  }
  return active_links;
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

std::vector<std::string> MigUuids(const Api& api, nvml::Device device) {
  std::vector<std::string> uuids;
  unsigned count = 0;
  if (api.max_mig_devices == nullptr || api.mig_device_by_index == nullptr ||
      api.max_mig_devices(device, &count) != nvml::kSuccess)
    return uuids;
  for (unsigned i = 0; i < count; ++i) {
    nvml::Device part = nullptr;
    if (api.mig_device_by_index(device, i, &part) != nvml::kSuccess) continue;
    if (const std::string uuid = UuidOf(api, part); !uuid.empty()) uuids.push_back(uuid);
  }
  return uuids;
}

GpuInventory Ask(const Api& api, unsigned count) {
  GpuInventory inventory;
  for (unsigned index = 0; index < count; ++index) {
    Gpu gpu{.index = static_cast<int>(index)};
    nvml::Device device = nullptr;
    const nvml::Return code = api.device_by_index(index, &device);
    if (code != nvml::kSuccess) {
      gpu.permitted = false;
      if (code != nvml::kNoPermission) gpu.error = code;
      inventory.gpus.push_back(gpu);
      continue;
    }
    gpu.uuid = UuidOf(api, device);
    nvml::PciInfo pci{};
    if (api.pci_info(device, &pci) == nvml::kSuccess)
      gpu.pci_address = KernelPciAddress(pci.bus_id);
    gpu.active_links = ActiveLinks(api, device);
    gpu.mig_uuids = MigUuids(api, device);
    const std::string clique = CliqueOf(api, device);
    const bool first = inventory.gpus.empty();
    inventory.clique = first || clique == inventory.clique ? clique : "";
    inventory.gpus.push_back(std::move(gpu));
  }
  return inventory;
}

struct CloseLibrary {
  void operator()(void* library) const { ::dlclose(library); }
};

}  // namespace

NvlinkFacts GpuInventory::Nvlink() const {
  NvlinkFacts facts{.clique = clique};
  for (const Gpu& gpu : gpus) {
    if (!gpu.permitted) continue;
    facts.active_links =
        facts.gpus == 0 ? gpu.active_links : std::min(facts.active_links, gpu.active_links);
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
  if (code == nvml::kSuccess) inventory = Ask(api, count);
  api.shutdown();
  if (code != nvml::kSuccess)
    return Unavailable("the GPU management library cannot count GPUs: error " +
                       std::to_string(code));
  return inventory;
}

const Gpu* FindGpu(const std::vector<Gpu>& gpus, const std::string& entry) {
  const bool number = !entry.empty() && entry.find_first_not_of("0123456789") == std::string::npos;
  for (const Gpu& gpu : gpus) {
    if (number && std::to_string(gpu.index) == entry) return &gpu;
    if (gpu.uuid.empty() || number) continue;
    if (entry.starts_with("GPU-") && gpu.uuid.starts_with(entry)) return &gpu;
    // Before driver 470 a part was named by its GPU: "MIG-GPU-8a0e.../1/0".
    if (entry.starts_with("MIG-" + gpu.uuid + "/")) return &gpu;
    const auto is_it = [&](const std::string& part) {
      return entry.starts_with("MIG-") && part.starts_with(entry);
    };
    if (std::any_of(gpu.mig_uuids.begin(), gpu.mig_uuids.end(), is_it)) return &gpu;
  }
  return nullptr;
}

}  // namespace muster::worker
