#include "coordinator/control/slot_ledger.h"

#include <algorithm>

namespace muster {

void SlotLedger::Take(const NodeName& node, const JobId& job, Generation generation, int slots) {
  Put(node, job, {Kind::kGang, generation, slots});
}

void SlotLedger::Quiesce(const NodeName& node, const JobId& job, int slots) {
  Hold* hold = Get(node, job);
  if (hold != nullptr && hold->kind == Kind::kGang) hold->slots = std::max(0, slots);
}

void SlotLedger::ParkGang(const JobId& job) {
  const auto nodes = nodes_of_.find(job);
  if (nodes == nodes_of_.end()) return;
  const std::set<NodeName> names = nodes->second;
  for (const NodeName& name : names) {
    Hold& hold = *Get(name, job);
    if (hold.kind != Kind::kGang) continue;
    hold.kind = Kind::kParked;
    if (hold.slots == 0) Erase(name, job);
  }
}

void SlotLedger::Park(const NodeName& node, const JobId& job, Generation generation, int slots) {
  Put(node, job, {Kind::kParked, generation, slots});
}

void SlotLedger::Orphan(const NodeName& node, const JobId& job, Generation generation, int slots) {
  Put(node, job, {Kind::kOrphaned, generation, slots});
}

std::map<NodeName, SlotLedger::Hold> SlotLedger::OrphanParked(const JobId& job) {
  std::map<NodeName, Hold> parked = Parked(job);
  for (const auto& [name, hold] : parked) Orphan(name, job, hold.generation, hold.slots);
  return parked;
}

bool SlotLedger::Prove(const NodeName& node, const JobId& job, Generation generation) {
  const Hold* hold = Find(node, job);
  if (hold == nullptr || hold->kind != Kind::kOrphaned || hold->generation > generation) {
    return false;
  }
  Erase(node, job);
  return true;
}

void SlotLedger::ProveTerminated(const NodeName& node, const JobId& job) {
  const Hold* hold = Find(node, job);
  if (hold != nullptr && hold->kind == Kind::kOrphaned) Erase(node, job);
}

void SlotLedger::ProveAllGoneBut(const NodeName& node, const std::set<JobId>& jobs) {
  const auto holds = by_node_.find(node);
  if (holds == by_node_.end()) return;
  std::vector<JobId> gone;
  for (const auto& [job, hold] : holds->second) {
    if (!jobs.contains(job)) gone.push_back(job);
  }
  for (const JobId& job : gone) ProveTerminated(node, job);
}

void SlotLedger::Reboot(const NodeName& node) { ProveAllGoneBut(node, {}); }

int SlotLedger::Used(const NodeName& node) const {
  int used = 0;
  const auto holds = by_node_.find(node);
  if (holds == by_node_.end()) return used;
  for (const auto& [job, hold] : holds->second) used += hold.slots;
  return used;
}

int SlotLedger::Busy(const NodeName& node) const {
  int busy = 0;
  const auto holds = by_node_.find(node);
  if (holds == by_node_.end()) return busy;
  for (const auto& [job, hold] : holds->second) busy += hold.kind == Kind::kParked ? 0 : hold.slots;
  return busy;
}

std::vector<JobId> SlotLedger::Holders(const NodeName& node) const {
  std::vector<JobId> jobs;
  const auto holds = by_node_.find(node);
  if (holds == by_node_.end()) return jobs;
  for (const auto& [job, hold] : holds->second) {
    if (hold.slots > 0) jobs.push_back(job);
  }
  return jobs;
}

std::set<NodeName> SlotLedger::Nodes(const JobId& job) const {
  const auto nodes = nodes_of_.find(job);
  return nodes == nodes_of_.end() ? std::set<NodeName>() : nodes->second;
}

const SlotLedger::Hold* SlotLedger::Find(const NodeName& node, const JobId& job) const {
  const auto holds = by_node_.find(node);
  if (holds == by_node_.end()) return nullptr;
  const auto hold = holds->second.find(job);
  return hold == holds->second.end() ? nullptr : &hold->second;
}

std::map<NodeName, SlotLedger::Hold> SlotLedger::Parked(const JobId& job) const {
  std::map<NodeName, Hold> parked;
  const auto nodes = nodes_of_.find(job);
  if (nodes == nodes_of_.end()) return parked;
  for (const NodeName& name : nodes->second) {
    const Hold& hold = *Find(name, job);
    if (hold.kind == Kind::kParked) parked.emplace(name, hold);
  }
  return parked;
}

void SlotLedger::Put(const NodeName& node, const JobId& job, Hold hold) {
  by_node_[node][job] = hold;
  nodes_of_[job].insert(node);
}

void SlotLedger::Erase(const NodeName& node, const JobId& job) {
  const auto holds = by_node_.find(node);
  holds->second.erase(job);
  if (holds->second.empty()) by_node_.erase(holds);
  const auto nodes = nodes_of_.find(job);
  nodes->second.erase(node);
  if (nodes->second.empty()) nodes_of_.erase(nodes);
}

SlotLedger::Hold* SlotLedger::Get(const NodeName& node, const JobId& job) {
  return const_cast<Hold*>(Find(node, job));
}

}  // namespace muster
