#include "coordinator/control/node_parts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace muster::control {
namespace {

// Nothing on the node, which is lost, may use the device any more.
bool IsGone(const State& state, const NodeName& name, const std::string& device) {
  const auto node = state.nodes.find(name);
  if (node == state.nodes.end()) return true;
  if (node->second.record.state != NodeState::kLost) return false;
  const std::vector<std::string> held = state.holds.Used(name).devices;
  return std::ranges::find(held, device) == held.end();
}

// The other node that has the device rather than this one; nullptr: none.
const NodeName* OwnerOf(const State& state, const std::string& device, const NodeName& name) {
  const auto nodes = state.device_nodes.find(device);
  if (nodes == state.device_nodes.end()) return nullptr;
  for (const NodeName& other : nodes->second) {
    if (other == name) return nullptr;
    if (!IsGone(state, other, device)) return &other;
  }
  return nullptr;
}

void GiveUp(State& state, const std::string& device, const NodeName& name) {
  const auto nodes = state.device_nodes.find(device);
  if (nodes == state.device_nodes.end()) return;
  std::erase(nodes->second, name);
  if (nodes->second.empty()) state.device_nodes.erase(nodes);
}

DeviceMask AllocatableDevices(const State& state, const NodeEntry& node) {
  const NodeRecord& record = node.record;
  DeviceMask mask = 0;
  for (std::size_t i = 0; i < record.inventory.devices.size(); ++i) {
    const Device& device = record.inventory.devices[i];
    if (device.fault.empty() && OwnerOf(state, device.id, record.name) == nullptr)
      mask |= DeviceMask{1} << i;
  }
  for (const BrokenDevice& broken : record.broken_devices) mask &= ~MaskOf(node, {broken.id});
  return mask;
}

}  // namespace

int UsedSlots(const State& state, const NodeEntry& node) {
  return state.holds.UsedSlots(node.record.name) + static_cast<int>(node.record.leaked.size());
}

DeviceMask MaskOf(const NodeEntry& node, const std::vector<std::string>& ids) {
  DeviceMask mask = 0;
  const std::vector<Device>& devices = node.record.inventory.devices;
  for (const std::string& id : ids) {
    const auto device = std::ranges::find(devices, id, &Device::id);
    if (device != devices.end()) mask |= DeviceMask{1} << (device - devices.begin());
  }
  return mask;
}

std::vector<std::string> DeviceIds(const NodeEntry& node, DeviceMask mask) {
  std::vector<std::string> ids;
  for (const Device& device : node.record.inventory.devices) {
    if ((mask & 1) != 0) ids.push_back(device.id);
    mask >>= 1;
  }
  return ids;
}

NodeCapacity WholeOf(const State& state, const NodeEntry& node) {
  const NodeRecord& record = node.record;
  const NodeInventory& inventory = record.inventory;
  return {.name = record.name,
          .inventory = &inventory,
          .all = {.slots = record.slots,
                  .devices = AllocatableDevices(state, node),
                  .cpus = inventory.cpus,
                  .memory_bytes = inventory.memory_bytes},
          .domain = record.domain()};
}

NodeCapacity WholeOf(const NodeInventory& declared, int slots) {
  return {.name = NodeName{"a node of the pool"},
          .inventory = &declared,
          .all = {.slots = slots,
                  .devices = (DeviceMask{1} << declared.devices.size()) - 1,
                  .cpus = declared.cpus,
                  .memory_bytes = declared.memory_bytes}};
}

NodeCapacity CapacityOf(const State& state, const NodeEntry& node) {
  NodeCapacity capacity = WholeOf(state, node);
  const HeldResources used = state.holds.Used(node.record.name);
  DeviceMask in_use = 0;
  if (capacity.all.devices != 0) {
    in_use = MaskOf(node, used.devices);
    for (const LeakedSlot& leaked : node.record.leaked) in_use |= MaskOf(node, leaked.devices);
  }
  const NodeParts& all = capacity.all;
  capacity.free = {
      .slots = all.slots - UsedSlots(state, node),
      .devices = all.devices & ~in_use,
      .cpus = all.cpus - used.cpus,
      .memory_bytes = all.memory_bytes - std::min(all.memory_bytes, used.memory_bytes)};
  return capacity;
}

std::vector<std::string> DevicesOn(const AttemptRecord& attempt, const NodeName& node) {
  const auto of = [&node](const std::vector<NodeName>& names,
                          const std::vector<std::vector<std::string>>& devices) {
    const auto place = static_cast<std::size_t>(std::ranges::find(names, node) - names.begin());
    return place < devices.size() ? devices[place] : std::vector<std::string>();
  };
  std::vector<std::string> devices = of(attempt.nodes, attempt.node_devices);
  return devices.empty() ? of(attempt.spares, attempt.spare_devices) : devices;
}

std::vector<std::string> DevicesOf(const JobEntry& job, const AttemptRecord& attempt,
                                   const RankRecord& rank) {
  std::vector<std::string> devices = DevicesOn(attempt, rank.node);
  const auto per_rank = static_cast<std::size_t>(job.spec.resources.gpus.per_rank);
  const std::size_t first = static_cast<std::size_t>(rank.local_rank) * per_rank;
  if (job.spec.resources.sees_all_gpus || devices.size() < first + per_rank) return devices;
  const auto begin = devices.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(per_rank)};
}

std::vector<std::string> DevicesOfProcess(const State& state, const JobId& id, const NodeName& node,
                                          std::int64_t pid) {
  const auto job = state.jobs.find(id);
  if (job != state.jobs.end() && !job->second.attempts.empty()) {
    const AttemptRecord& attempt = job->second.attempts.back();
    for (const RankRecord& rank : attempt.ranks)
      if (rank.node == node && rank.pid == pid) return DevicesOf(job->second, attempt, rank);
  }
  const HoldLedger::Hold* hold = state.holds.Find(node, id);
  return hold == nullptr ? std::vector<std::string>() : hold->resources.devices;
}

HeldResources HeldBy(const JobEntry& job, int slots, std::vector<std::string> devices) {
  const NodeDemand demand = job.spec.resources.per_node();
  return {.slots = slots,
          .devices = std::move(devices),
          .cpus = demand.cpus(),
          .memory_bytes = demand.memory_bytes()};
}

HeldResources HeldOn(const JobEntry& job, const NodeName& node) {
  return HeldBy(job, job.spec.resources.ranks_per_node, DevicesOn(job.attempts.back(), node));
}

std::vector<std::string> ClaimDevices(State& state, const NodeEntry& node,
                                      const std::vector<Device>& before) {
  const NodeName& name = node.record.name;
  const std::vector<Device>& devices = node.record.inventory.devices;
  for (const Device& device : before)
    if (std::ranges::find(devices, device.id, &Device::id) == devices.end())
      GiveUp(state, device.id, name);
  std::vector<std::string> conflicts;
  for (const Device& device : devices) {
    std::vector<NodeName>& nodes = state.device_nodes[device.id];
    if (std::ranges::find(nodes, name) != nodes.end()) continue;
    nodes.push_back(name);
    if (const NodeName* other = OwnerOf(state, device.id, name))
      conflicts.push_back("node " + other->value + " has reported device " + device.id +
                          " before; it is not used on node " + name.value);
  }
  return conflicts;
}

void GiveUpDevices(State& state, const NodeEntry& node) {
  for (const Device& device : node.record.inventory.devices)
    GiveUp(state, device.id, node.record.name);
}

}  // namespace muster::control
