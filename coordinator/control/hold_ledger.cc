#include "coordinator/control/hold_ledger.h"

#include <algorithm>
#include <utility>

namespace muster {
namespace {

bool Lists(const std::vector<std::string>& ids, const std::string& id) {
  return std::ranges::find(ids, id) != ids.end();
}

}  // namespace

void HoldLedger::Take(const NodeName& node, const JobId& job, Generation generation,
                      HeldResources resources) {
  PutOver(node, job, {Kind::kGang, generation, std::move(resources)});
}

void HoldLedger::AddLeaving(const NodeName& node, const JobId& job,
                            const std::vector<std::string>& devices) {
  Hold* hold = Get(node, job);
  if (hold == nullptr) return;
  for (const std::string& device : devices)
    if (!Lists(hold->resources.devices, device) && !Lists(hold->leaving, device))
      hold->leaving.push_back(device);
}

void HoldLedger::Prepared(const NodeName& node, const JobId& job) {
  if (Hold* hold = Get(node, job)) hold->leaving.clear();
}

void HoldLedger::Quiesce(const NodeName& node, const JobId& job, int slots) {
  Hold* hold = Get(node, job);
  if (hold == nullptr || hold->kind != Kind::kGang) return;
  hold->leaving.clear();
  if (slots <= 0) hold->resources = {};
  hold->resources.slots = std::max(0, slots);
}

void HoldLedger::ParkGang(const JobId& job) {
  const auto nodes = nodes_of_.find(job);
  if (nodes == nodes_of_.end()) return;
  const std::set<NodeName> names = nodes->second;
  for (const NodeName& name : names) {
    Hold& hold = *Get(name, job);
    if (hold.kind != Kind::kGang) continue;
    hold.kind = Kind::kParked;
    if (hold.resources.slots == 0) Erase(name, job);
  }
}

void HoldLedger::Park(const NodeName& node, const JobId& job, Generation generation,
                      HeldResources resources) {
  Put(node, job, {Kind::kParked, generation, std::move(resources)});
}

void HoldLedger::Orphan(const NodeName& node, const JobId& job, Generation generation,
                        HeldResources resources) {
  PutOver(node, job, {Kind::kOrphaned, generation, std::move(resources)});
}

std::map<NodeName, HoldLedger::Hold> HoldLedger::OrphanParked(const JobId& job) {
  std::map<NodeName, Hold> parked = Parked(job);
  for (const auto& [name, hold] : parked) Orphan(name, job, hold.generation, hold.resources);
  return parked;
}

bool HoldLedger::Prove(const NodeName& node, const JobId& job, Generation generation) {
  const Hold* hold = Find(node, job);
  if (hold == nullptr || hold->kind != Kind::kOrphaned || hold->generation > generation) {
    return false;
  }
  Erase(node, job);
  return true;
}

void HoldLedger::ProveTerminated(const NodeName& node, const JobId& job) {
  const Hold* hold = Find(node, job);
  if (hold != nullptr && hold->kind == Kind::kOrphaned) Erase(node, job);
}

void HoldLedger::ProveAllGoneBut(const NodeName& node, const std::set<JobId>& jobs) {
  const auto holds = by_node_.find(node);
  if (holds == by_node_.end()) return;
  std::vector<JobId> gone;
  for (const auto& [job, hold] : holds->second) {
    if (!jobs.contains(job)) gone.push_back(job);
  }
  for (const JobId& job : gone) ProveTerminated(node, job);
}

void HoldLedger::Reboot(const NodeName& node) { ProveAllGoneBut(node, {}); }

HoldLedger::Used HoldLedger::UsedOf(const NodeName& node) const {
  Used used;
  const auto add = [](HeldResources& to, const std::vector<std::string>& devices) {
    to.devices.insert(to.devices.end(), devices.begin(), devices.end());
  };
  for (const auto& [job, hold] : On(node)) {
    const HeldResources& held = hold.resources;
    const bool shared = held.use == HoldUse::kShared;
    HeldResources& sum = shared ? used.shared : held.use == HoldUse::kLent ? used.lent : used.own;
    sum.slots = shared ? std::max(sum.slots, held.slots) : sum.slots + held.slots;
    sum.cpus = shared ? std::max(sum.cpus, held.cpus) : sum.cpus + held.cpus;
    sum.memory_bytes = shared ? std::max(sum.memory_bytes, held.memory_bytes)
                              : sum.memory_bytes + held.memory_bytes;
    add(sum, held.devices);
    add(used.own, hold.leaving);
  }
  return used;
}

int HoldLedger::UsedSlots(const NodeName& node) const {
  const Used used = UsedOf(node);
  return used.own.slots + std::max(used.shared.slots, used.lent.slots);
}

int HoldLedger::BusySlots(const NodeName& node) const {
  int busy = 0;
  for (const auto& [job, hold] : On(node))
    busy += hold.kind == Kind::kParked || hold.resources.use == HoldUse::kShared
                ? 0
                : hold.resources.slots;
  return busy;
}

const std::map<JobId, HoldLedger::Hold>& HoldLedger::On(const NodeName& node) const {
  static const std::map<JobId, Hold> kNone;
  const auto holds = by_node_.find(node);
  return holds == by_node_.end() ? kNone : holds->second;
}

std::vector<JobId> HoldLedger::Holders(const NodeName& node) const {
  std::vector<JobId> jobs;
  for (const auto& [job, hold] : On(node)) {
    if (hold.resources.slots > 0) jobs.push_back(job);
  }
  return jobs;
}

const std::set<NodeName>& HoldLedger::Nodes(const JobId& job) const {
  static const std::set<NodeName> none;
  const auto nodes = nodes_of_.find(job);
  return nodes == nodes_of_.end() ? none : nodes->second;
}

const HoldLedger::Hold* HoldLedger::Find(const NodeName& node, const JobId& job) const {
  const auto holds = by_node_.find(node);
  if (holds == by_node_.end()) return nullptr;
  const auto hold = holds->second.find(job);
  return hold == holds->second.end() ? nullptr : &hold->second;
}

std::map<NodeName, HoldLedger::Hold> HoldLedger::Parked(const JobId& job) const {
  std::map<NodeName, Hold> parked;
  const auto nodes = nodes_of_.find(job);
  if (nodes == nodes_of_.end()) return parked;
  for (const NodeName& name : nodes->second) {
    const Hold& hold = *Find(name, job);
    if (hold.kind == Kind::kParked) parked.emplace(name, hold);
  }
  return parked;
}

void HoldLedger::PutOver(const NodeName& node, const JobId& job, Hold hold) {
  std::vector<std::string> before;
  if (const Hold* old = Find(node, job)) {
    // No process has a device of a shared spare.
    if (old->resources.use != HoldUse::kShared) before = old->resources.devices;
    before.insert(before.end(), old->leaving.begin(), old->leaving.end());
  }
  Put(node, job, std::move(hold));
  AddLeaving(node, job, before);
}

void HoldLedger::Put(const NodeName& node, const JobId& job, Hold hold) {
  by_node_[node][job] = std::move(hold);
  nodes_of_[job].insert(node);
}

void HoldLedger::Erase(const NodeName& node, const JobId& job) {
  const auto holds = by_node_.find(node);
  holds->second.erase(job);
  if (holds->second.empty()) by_node_.erase(holds);
  const auto nodes = nodes_of_.find(job);
  nodes->second.erase(node);
  if (nodes->second.empty()) nodes_of_.erase(nodes);
}

HoldLedger::Hold* HoldLedger::Get(const NodeName& node, const JobId& job) {
  return const_cast<Hold*>(Find(node, job));
}

}  // namespace muster
