#include "worker/fabric/fabric_facts.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "common/net/interfaces.h"
#include "worker/fabric/sysfs.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kNvidiaVendor[] = "0x10de";
// Classes of the PCI specification's list: 3D controller, VGA controller, other bridge (NVSwitch).
constexpr char kClass3d[] = "0x0302";
constexpr char kClassVga[] = "0x0300";
constexpr char kClassOtherBridge[] = "0x0680";
// Limit of entries of a table of 256; the relevant ones come first, one per address and type.
constexpr int kMaxGids = 32;

// "4: ACTIVE" is ACTIVE.
std::string AfterColon(const std::string& text) {
  const std::size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

// Eight groups of four digits. An entry that is not set is all zeros.
bool IsSet(const std::string& gid) { return gid.find_first_not_of("0:") != std::string::npos; }

bool IsRoutable(const std::string& gid) { return IsSet(gid) && !gid.starts_with("fe80:"); }

std::vector<GidEntry> ReadGids(const fs::path& port) {
  std::vector<GidEntry> gids;
  for (int index = 0; index < kMaxGids; ++index) {
    const std::string number = std::to_string(index);
    const std::string gid = ReadSysfs(port / "gids" / number);
    if (!IsSet(gid)) continue;
    gids.push_back({.index = index,
                    .type = ReadSysfs(port / "gid_attrs/types" / number),
                    .routable = IsRoutable(gid)});
  }
  return gids;
}

RdmaPort ReadPort(const fs::path& directory) {
  RdmaPort port{.number = static_cast<int>(ParseNumber(directory.filename().string(), 1)),
                .state = AfterColon(ReadSysfs(directory / "state")),
                .phys_state = AfterColon(ReadSysfs(directory / "phys_state")),
                .link_layer = ReadSysfs(directory / "link_layer"),
                .gbps = std::strtod(ReadSysfs(directory / "rate").c_str(), nullptr),
                .net_device = ReadSysfs(directory / "gid_attrs/ndevs/0")};
  // The table of an InfiniBand port holds what the subnet manager has given it.
  if (port.link_layer == "Ethernet") port.gids = ReadGids(directory);
  return port;
}

// Names of the adapters whose character devices this process can see. A container sees the whole of
// sysfs, but only its own devices.
std::vector<std::string> DevicesWithVerbs(const fs::path& root) {
  std::vector<std::string> names;
  for (const fs::path& entry : SortedEntries(root / "sys/class/infiniband_verbs")) {
    std::error_code error;
    const bool there = fs::exists(root / "dev/infiniband" / entry.filename(), error);
    if (there) names.push_back(ReadSysfs(entry / "ibdev"));
  }
  return names;
}

std::vector<RdmaDevice> ReadRdma(const fs::path& root) {
  const std::vector<std::string> with_verbs = DevicesWithVerbs(root);
  std::vector<RdmaDevice> devices;
  for (const fs::path& entry : SortedEntries(root / "sys/class/infiniband")) {
    const std::string name = entry.filename().string();
    RdmaDevice device{
        .name = name,
        .vendor = ReadSysfs(entry / "device/vendor"),
        .pci_address = PciAddress(entry / "device"),
        .numa_node = static_cast<int>(ParseNumber(ReadSysfs(entry / "device/numa_node"), -1)),
        .has_verbs = std::find(with_verbs.begin(), with_verbs.end(), name) != with_verbs.end()};
    for (const fs::path& port : SortedEntries(entry / "ports"))
      device.ports.push_back(ReadPort(port));
    devices.push_back(std::move(device));
  }
  return devices;
}

// Devices that do not report their state, such as tun, WireGuard, dummy and some of virtio, are
// always "unknown"; the kernel treats them as usable while they have a carrier.
bool IsUp(const fs::path& device) {
  const std::string state = ReadSysfs(device / "operstate");
  return state == "up" || (state == "unknown" && ReadSysfs(device / "carrier") == "1");
}

std::vector<NetDevice> ReadNets(const fs::path& root) {
  std::vector<NetDevice> nets;
  for (const fs::path& entry : SortedEntries(root / "sys/class/net")) {
    NetworkInterface interface {
      .name = entry.filename().string(), .loopback = ReadSysfs(entry / "type") == "772"
    };
    if (!LeadsOut(interface)) continue;
    const long long speed = ParseNumber(ReadSysfs(entry / "speed"), 0);
    nets.push_back({.name = interface.name,
                    .up = IsUp(entry),
                    .speed_mbps = speed > 0 && speed < 10'000'000 ? static_cast<int>(speed) : 0,
                    .pci_address = PciAddress(entry / "device")});
  }
  return nets;
}

void ReadPci(const fs::path& root, FabricFacts* facts) {
  for (const fs::path& entry : SortedEntries(root / "sys/bus/pci/devices")) {
    if (ReadSysfs(entry / "vendor") != kNvidiaVendor) continue;
    const std::string type = ReadSysfs(entry / "class").substr(0, 6);
    if (type == kClass3d || type == kClassVga)
      facts->gpus.push_back(
          {.pci_address = entry.filename().string(),
           .numa_node = static_cast<int>(ParseNumber(ReadSysfs(entry / "numa_node"), -1))});
    if (type == kClassOtherBridge) ++facts->nvswitches;
  }
  // Hexadecimal numbers of one width: as the driver counts.
  std::sort(facts->gpus.begin(), facts->gpus.end(),
            [](const GpuDevice& a, const GpuDevice& b) { return a.pci_address < b.pci_address; });
}

// Directories where distributions and Amazon's installer put NCCL's network plug-ins.
std::vector<std::string> FindNetPlugins(const fs::path& root) {
  std::vector<std::string> found;
  for (const char* folder :
       {"opt/amazon/ofi-nccl/lib/x86_64-linux-gnu", "opt/amazon/ofi-nccl/lib",
        "opt/amazon/ofi-nccl/lib64", "opt/aws-ofi-nccl/lib", "usr/local/lib",
        "usr/lib/x86_64-linux-gnu", "usr/lib64", "opt/hpcx/nccl_rdma_sharp_plugin/lib"})
    for (const fs::path& file : SortedEntries(root / folder))
      if (const std::string name = file.filename().string();
          name.starts_with("libnccl-net") && name.ends_with(".so"))
        found.push_back((fs::path("/") / folder / name).string());
  return found;
}

bool HasVerbsLibrary(const fs::path& root) {
  for (const char* folder : {"usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib/aarch64-linux-gnu",
                             "lib/x86_64-linux-gnu", "usr/local/lib"}) {
    std::error_code error;
    if (fs::exists(root / folder / "libibverbs.so.1", error)) return true;
  }
  return false;
}

bool HasPeermem(const fs::path& root) {
  for (const char* place :
       {"sys/module/nvidia_peermem", "sys/module/nv_peer_mem", "sys/module/efa_nv_peermem",
        "sys/kernel/mm/memory_peers/nv_mem", "sys/kernel/mm/memory_peers/nvidia-peermem"}) {
    std::error_code error;
    if (fs::exists(root / place, error)) return true;
  }
  return false;
}

// What NCCL reads besides its environment; one NAME=value a line.
std::map<std::string, std::string> NcclFile(const fs::path& root) {
  std::istringstream lines(ReadSysfs(root / "etc/nccl.conf"));
  std::map<std::string, std::string> variables;
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t equals = line.find('='); line.starts_with("NCCL_") && equals != line.npos)
      variables[line.substr(0, equals)] = line.substr(equals + 1);
  return variables;
}

}  // namespace

FabricFacts ReadFabricFacts(const std::string& root) {
  const fs::path base(root);
  FabricFacts facts{.rdma = ReadRdma(base),
                    .nets = ReadNets(base),
                    .peermem = HasPeermem(base),
                    .net_plugins = FindNetPlugins(base),
                    .has_verbs_library = HasVerbsLibrary(base),
                    .nccl = NcclFile(base)};
  ReadPci(base, &facts);
  facts.open_modules = ReadSysfs(base / "proc/driver/nvidia/version").find("Open Kernel Module") !=
                       std::string::npos;
  return facts;
}

std::map<std::string, std::string> NcclVariables(const char* const* environment) {
  std::map<std::string, std::string> variables;
  for (const char* const* entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (text.starts_with("NCCL_") && equals != std::string_view::npos)
      variables[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  return variables;
}

}  // namespace muster::worker
