#include "coordinator/scheduler/node_fit.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

namespace muster {
namespace {

DeviceMask Bit(std::size_t index) { return DeviceMask{1} << index; }

// The lowest `count` bits.
DeviceMask First(DeviceMask mask, int count) {
  DeviceMask first = 0;
  for (; count > 0 && mask != 0; --count) {
    const DeviceMask lowest = mask & (~mask + 1);
    first |= lowest;
    mask &= ~lowest;
  }
  return first;
}

bool Suits(const DeviceDemand& demand, const Device& device) {
  // A rank would see one GPU where it has two shares of it.
  if (demand.per_rank > 1 && device.shared) return false;
  if (device.memory_bytes < demand.min_memory_bytes) return false;
  return demand.kinds.empty() || std::ranges::any_of(demand.kinds, [&](const std::string& wanted) {
           return IsKind(device.kind, wanted);
         });
}

}  // namespace

NodeParts AtLeastNone(const NodeParts& parts) {
  return {.slots = std::max(0, parts.slots),
          .devices = parts.devices,
          .cpus = std::max(0, parts.cpus),
          .memory_bytes = parts.memory_bytes};
}

std::string_view Name(Lack lack) {
  switch (lack) {
    case Lack::kNothing: return "nothing";
    case Lack::kLabels: return "labels";
    case Lack::kDeviceKind: return "device_kind";
    case Lack::kDevices: return "devices";
    case Lack::kSlots: return "slots";
    case Lack::kCpus: return "cpus";
    case Lack::kMemory: return "memory";
    case Lack::kPlace: return "place";
  }
  return "nothing";
}

std::string_view Name(TopologyLevel level) {
  switch (level) {
    case TopologyLevel::kNone: return "none";
    case TopologyLevel::kBlock: return "block";
    case TopologyLevel::kRack: return "rack";
    case TopologyLevel::kSwitch: return "switch";
  }
  return "none";
}

const std::string& PlaceOf(const NodeInventory& inventory, TopologyLevel level) {
  static const std::string kUnknown;
  switch (level) {
    case TopologyLevel::kNone: break;
    case TopologyLevel::kBlock: return inventory.topology.block;
    case TopologyLevel::kRack: return inventory.topology.rack;
    case TopologyLevel::kSwitch: return inventory.topology.switch_name;
  }
  return kUnknown;
}

NodeMatch Match(const NodeDemand& demand, const NodeInventory& inventory) {
  NodeMatch match;
  const bool allowed = std::ranges::all_of(
      demand.labels, [&](const LabelRule& rule) { return rule.Allows(inventory.labels); });
  const TopologyDemand& topology = demand.topology;
  const bool placed = !topology.required || topology.within == TopologyLevel::kNone ||
                      !PlaceOf(inventory, topology.within).empty();
  if (!allowed || !placed) match.lack = allowed ? Lack::kPlace : Lack::kLabels;
  if (demand.device_count() == 0) return match;
  const DeviceDemand& devices = demand.devices;
  // Any device suits, so that none is looked at.
  if (devices.per_rank == 1 && devices.min_memory_bytes == 0 && devices.kinds.empty()) {
    match.suitable =
        inventory.devices.empty() ? 0 : ~DeviceMask{0} >> (64 - inventory.devices.size());
    return match;
  }
  for (std::size_t i = 0; i < inventory.devices.size(); ++i) {
    if (Suits(devices, inventory.devices[i])) match.suitable |= Bit(i);
  }
  return match;
}

DeviceMask ChooseDevices(int count, const NodeInventory& inventory, DeviceMask among,
                         DeviceMask preferred) {
  DeviceMask chosen = First(among & preferred, count);
  int missing = count - std::popcount(chosen);
  if (missing == 0) return chosen;
  std::map<std::string_view, DeviceMask> domains;
  for (std::size_t i = 0; i < inventory.devices.size(); ++i) {
    if ((among & ~chosen & Bit(i)) != 0) domains[inventory.devices[i].link_domain] |= Bit(i);
  }
  // The domain that holds the rest with the least left over, next to what is chosen already; then
  // the largest ones.
  while (missing > 0 && !domains.empty()) {
    const auto cost = [&](const auto& domain) {
      const int size = std::popcount(domain.second);
      const bool joined =
          !domain.first.empty() &&
          std::ranges::any_of(
              inventory.devices, [&, i = std::size_t{0}](const Device& device) mutable {
                return (chosen & Bit(i++)) != 0 && device.link_domain == domain.first;
              });
      return std::tuple(size < missing, !joined, size < missing ? -size : size);
    };
    const auto best = std::ranges::min_element(domains, {}, cost);
    const DeviceMask part = First(best->second, missing);
    chosen |= part;
    missing -= std::popcount(part);
    domains.erase(best);
  }
  return chosen;
}

}  // namespace muster
