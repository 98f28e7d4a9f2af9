#include "coordinator/control/node_parts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace muster::control {
namespace {

DeviceMask FirstDevices(std::size_t count) {
  return count >= std::size_t{kMaxDevicesPerNode} ? ~DeviceMask{0} : (DeviceMask{1} << count) - 1;
}

// Processes on the node may use the device.
bool MayUse(const State& state, const NodeName& name, const std::string& device) {
  const auto names = [&device](const std::vector<std::string>& devices) {
    return std::ranges::find(devices, device) != devices.end();
  };
  for (const auto& [job, hold] : state.holds.On(name))
    if (names(hold.resources.devices) || names(hold.leaving)) return true;
  const auto node = state.nodes.find(name);
  return node != state.nodes.end() &&
         std::ranges::any_of(node->second.record.leaked,
                             [&names](const LeakedSlot& leaked) { return names(leaked.devices); });
}

bool IsLost(const State& state, const NodeName& name) {
  const auto node = state.nodes.find(name);
  return node == state.nodes.end() || node->second.record.state == NodeState::kLost;
}

// The other node that has the device rather than this one; nullptr: none.
const NodeName* OwnerOf(const State& state, const std::string& device, const NodeName& name) {
  const auto found = state.device_nodes.find(device);
  if (found == state.device_nodes.end() || found->second.size() < 2) return nullptr;
  const std::vector<NodeName>& nodes = found->second;
  for (const NodeName& other : nodes)
    if (MayUse(state, other, device)) return other == name ? nullptr : &other;
  for (const NodeName& other : nodes) {
    if (other == name) return nullptr;
    if (!IsLost(state, other)) return &other;
  }
  return nullptr;
}

void GiveUp(State& state, const std::string& device, const NodeName& name) {
  const auto nodes = state.device_nodes.find(device);
  if (nodes == state.device_nodes.end()) return;
  std::erase(nodes->second, name);
  if (nodes->second.size() < 2) state.contested.erase(device);
  if (nodes->second.empty()) state.device_nodes.erase(nodes);
}

// A job has a device of the node that it no longer reports: the same may have another id by now.
bool HasUnreported(const State& state, const NodeRecord& record) {
  const auto unreported = [&record](const std::vector<std::string>& ids) {
    return std::ranges::any_of(ids, [&record](const std::string& id) {
      const std::vector<Device>& devices = record.inventory.devices;
      return std::ranges::find(devices, id, &Device::id) == devices.end();
    });
  };
  for (const auto& [job, hold] : state.holds.On(record.name))
    if (unreported(hold.resources.devices) || unreported(hold.leaving)) return true;
  return std::ranges::any_of(record.leaked, [&unreported](const LeakedSlot& leaked) {
    return unreported(leaked.devices);
  });
}

DeviceMask AllocatableDevices(const State& state, const NodeEntry& node) {
  const NodeRecord& record = node.record;
  const std::vector<Device>& devices = record.inventory.devices;
  if (devices.empty() || HasUnreported(state, record)) return 0;
  DeviceMask mask = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const bool another_has_it = state.contested.contains(devices[i].id) &&
                                OwnerOf(state, devices[i].id, record.name) != nullptr;
    if (devices[i].fault.empty() && !another_has_it) mask |= DeviceMask{1} << i;
  }
  for (const BrokenDevice& broken : record.broken_devices) mask &= ~MaskOf(node, {broken.id});
  for (const NoticeRecord& notice : record.notices) mask &= ~MaskOf(node, notice.in_use);
  return mask;
}

// Devices that jobs have for themselves alone, or that processes of theirs may still use. A job of
// an earlier version does not record its own.
DeviceMask DevicesInUse(const State& state, const NodeEntry& node) {
  DeviceMask in_use = 0;
  for (const auto& [id, hold] : state.holds.On(node.record.name)) {
    in_use |= MaskOf(node, hold.leaving);
    if (hold.resources.use != HoldUse::kOwn) continue;
    in_use |= MaskOf(node, hold.resources.devices);
    if (hold.resources.slots == 0 || !hold.resources.devices.empty()) continue;
    const auto job = state.jobs.find(id);
    if (job != state.jobs.end() && job->second.spec.resources.gpus.per_rank > 0)
      return ~DeviceMask{0};
  }
  for (const LeakedSlot& leaked : node.record.leaked) in_use |= MaskOf(node, leaked.devices);
  return in_use;
}

int LeakedSlots(const NodeEntry& node) { return static_cast<int>(node.record.leaked.size()); }

NodeParts PartsOf(const NodeEntry& node, const HeldResources& held) {
  return {.slots = held.slots,
          .devices = MaskOf(node, held.devices),
          .cpus = held.cpus,
          .memory_bytes = held.memory_bytes};
}

// What is left of `all` beside what jobs have for themselves alone, and what has leaked.
NodeParts BesideOwn(const State& state, const NodeEntry& node, const NodeParts& all,
                    const HeldResources& own) {
  NodeParts left = all;
  left.slots -= own.slots + LeakedSlots(node);
  left.cpus -= own.cpus;
  left.memory_bytes -= std::min(left.memory_bytes, own.memory_bytes);
  if (all.devices != 0) left.devices &= ~DevicesInUse(state, node);
  return left;
}

}  // namespace

int UsedSlots(const State& state, const NodeEntry& node) {
  const HoldLedger::Used used = state.holds.UsedOf(node.record.name);
  const int own = used.own.slots + LeakedSlots(node);
  const int beside = std::max(0, node.record.slots - own);
  return own + std::max(used.lent.slots, std::min(used.shared.slots, beside));
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
                  .devices = FirstDevices(declared.devices.size()),
                  .cpus = declared.cpus,
                  .memory_bytes = declared.memory_bytes}};
}

NodeCapacity IntactOf(const NodeEntry& node) {
  const NodeRecord& record = node.record;
  NodeCapacity capacity = WholeOf(record.inventory, record.slots);
  capacity.name = record.name;
  return capacity;
}

bool IsUnknown(const NodeInventory& inventory) {
  return inventory.devices.empty() && inventory.cpus == 0 && inventory.memory_bytes == 0;
}

NodeCapacity CapacityOf(const State& state, const NodeEntry& node) {
  NodeCapacity capacity = WholeOf(state, node);
  const HoldLedger::Used used = state.holds.UsedOf(node.record.name);
  capacity.free = BesideOwn(state, node, capacity.all, used.own);
  capacity.lent = PartsOf(node, used.lent);
  // What jobs have for themselves alone goes before what the spares were to hold.
  capacity.shared = AtLeastNone(Both(PartsOf(node, used.shared), capacity.free));
  capacity.shared = AtLeastNone(Less(capacity.shared, capacity.lent));
  capacity.free = Less(Less(capacity.free, capacity.lent), capacity.shared);
  return capacity;
}

std::vector<std::string> DevicesAt(const AttemptRecord& attempt, std::size_t place) {
  const bool spare = place >= attempt.nodes.size();
  const auto& devices = spare ? attempt.spare_devices : attempt.node_devices;
  if (spare) place -= attempt.nodes.size();
  return place < devices.size() ? devices[place] : std::vector<std::string>();
}

std::map<NodeName, std::vector<std::string>> DevicesByNode(const AttemptRecord& attempt) {
  std::map<NodeName, std::vector<std::string>> devices;
  for (std::size_t n = 0; n < attempt.node_devices.size(); ++n)
    devices[attempt.nodes[n]] = attempt.node_devices[n];
  for (std::size_t n = 0; n < attempt.spare_devices.size(); ++n)
    devices[attempt.spares[n]] = attempt.spare_devices[n];
  return devices;
}

std::vector<std::string> DevicesOn(const AttemptRecord& attempt, const NodeName& node) {
  if (attempt.node_devices.empty() && attempt.spare_devices.empty()) return {};
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
  if (const auto job = state.jobs.find(id); job != state.jobs.end()) {
    const std::vector<AttemptRecord>& attempts = job->second.attempts;
    for (auto attempt = attempts.rbegin(); attempt != attempts.rend(); ++attempt)
      for (const RankRecord& rank : attempt->ranks)
        if (rank.node == node && rank.pid == pid) return DevicesOf(job->second, *attempt, rank);
  }
  const HoldLedger::Hold* hold = state.holds.Find(node, id);
  if (hold == nullptr) return {};
  std::vector<std::string> devices = hold->resources.devices;
  devices.insert(devices.end(), hold->leaving.begin(), hold->leaving.end());
  return devices;
}

HoldUse UseOf(const JobEntry& job, const AttemptRecord& attempt, const NodeName& node) {
  const auto has = [&node](const std::vector<NodeName>& names) {
    return std::ranges::find(names, node) != names.end();
  };
  if (has(attempt.lent)) return HoldUse::kLent;
  return job.spec.resources.share_spares && has(attempt.spares) ? HoldUse::kShared : HoldUse::kOwn;
}

HeldResources HeldBy(const JobEntry& job, int slots, std::vector<std::string> devices,
                     HoldUse use) {
  const NodeDemand demand = job.spec.resources.per_node();
  return {.slots = slots,
          .devices = std::move(devices),
          .cpus = demand.cpus(),
          .memory_bytes = demand.memory_bytes(),
          .use = use};
}

HeldResources HeldBy(const JobEntry& job, const NodeName& node, int slots,
                     std::vector<std::string> devices) {
  const HoldUse use = job.attempts.empty() ? HoldUse::kOwn : UseOf(job, job.attempts.back(), node);
  return HeldBy(job, slots, std::move(devices), use);
}

Amounts AmountsOf(const JobEntry& job) {
  const AttemptRecord& attempt = job.attempts.back();
  const bool counts_spares = !job.spec.resources.share_spares;
  const auto nodes =
      static_cast<int>(attempt.nodes.size() + (counts_spares ? attempt.spares.size() : 0));
  return muster::AmountsOf(job.spec.resources.per_node(), nodes);
}

HeldResources HeldOn(const JobEntry& job, const NodeName& node) {
  return HeldBy(job, node, job.spec.resources.ranks_per_node, DevicesOn(job.attempts.back(), node));
}

HeldResources HeldAt(const JobEntry& job, std::size_t place) {
  const AttemptRecord& attempt = job.attempts.back();
  const std::size_t nodes = attempt.nodes.size();
  const NodeName& name = place < nodes ? attempt.nodes[place] : attempt.spares[place - nodes];
  return HeldBy(job, name, job.spec.resources.ranks_per_node, DevicesAt(attempt, place));
}

bool HasBesideOwn(const State& state, const NodeEntry& node, const HeldResources& held) {
  const NodeInventory& inventory = node.record.inventory;
  const NodeParts left =
      BesideOwn(state, node, WholeOf(state, node).all, state.holds.UsedOf(node.record.name).own);
  return held.slots <= left.slots && (MaskOf(node, held.devices) & ~left.devices) == 0 &&
         (inventory.cpus == 0 || held.cpus <= left.cpus) &&
         (inventory.memory_bytes == 0 || held.memory_bytes <= left.memory_bytes);
}

std::map<std::string, NodeName> DevicesOfOthers(const State& state, const NodeEntry& node) {
  std::map<std::string, NodeName> others;
  if (state.contested.empty()) return others;
  for (const Device& device : node.record.inventory.devices)
    if (const NodeName* other = OwnerOf(state, device.id, node.record.name))
      others.emplace(device.id, *other);
  return others;
}

bool SharesDevices(const State& state, const NodeEntry& node) {
  return !state.contested.empty() &&
         std::ranges::any_of(node.record.inventory.devices, [&state](const Device& device) {
           return state.contested.contains(device.id);
         });
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
    if (nodes.size() > 1) state.contested.insert(device.id);
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
