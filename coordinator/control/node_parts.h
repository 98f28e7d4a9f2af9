// The parts of nodes that jobs have: what there is to allocate on a node, what is free, which
// devices a job has there.
//
// Free functions over the controller's State; private to coordinator/control; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coordinator/control/state.h"
#include "coordinator/scheduler/gang_request.h"
#include "coordinator/scheduler/node_fit.h"

namespace muster::control {

// Held by jobs, and leaked.
int UsedSlots(const State& state, const NodeEntry& node);

// What there is to allocate on the node, what of it is free, and what shared spares hold. A device
// that another node has reported first, that has a fault, is broken or in use elsewhere is not
// there to allocate.
NodeCapacity CapacityOf(const State& state, const NodeEntry& node);
// The same without what is free.
NodeCapacity WholeOf(const State& state, const NodeEntry& node);
// What the node could have for jobs if nothing were broken.
NodeCapacity IntactOf(const NodeEntry& node);
// Its worker says nothing of what the node has: it is of an earlier version, or has not been here
// since the coordinator is of this one.
bool IsUnknown(const NodeInventory& inventory);
// What a node of a pool would have; the inventory outlives it.
NodeCapacity WholeOf(const NodeInventory& declared, int slots);

// The ids of the node's devices in the mask, in their order; the mask of those ids that it has.
std::vector<std::string> DeviceIds(const NodeEntry& node, DeviceMask mask);
DeviceMask MaskOf(const NodeEntry& node, const std::vector<std::string>& ids);

// That the attempt has on a node or spare; none: without devices, or it is neither.
std::vector<std::string> DevicesOn(const AttemptRecord& attempt, const NodeName& node);
// The same by place in the gang: its nodes, then its spares.
std::vector<std::string> DevicesAt(const AttemptRecord& attempt, std::size_t place);
// The devices of each of its nodes and spares.
std::map<NodeName, std::vector<std::string>> DevicesByNode(const AttemptRecord& attempt);

// That a process of the job on the node may use: those of its rank, if an attempt in memory has
// one, else all that the job holds there.
std::vector<std::string> DevicesOfProcess(const State& state, const JobId& id, const NodeName& node,
                                          std::int64_t pid);

// Those of one rank of the attempt.
std::vector<std::string> DevicesOf(const JobEntry& job, const AttemptRecord& attempt,
                                   const RankRecord& rank);

// What the attempt has its node or spare for.
HoldUse UseOf(const JobEntry& job, const AttemptRecord& attempt, const NodeName& node);
// What the job holds of a node with these slots and devices.
HeldResources HeldBy(const JobEntry& job, int slots, std::vector<std::string> devices,
                     HoldUse use = HoldUse::kOwn);
// The same of a node of its newest attempt, if it is one.
HeldResources HeldBy(const JobEntry& job, const NodeName& node, int slots,
                     std::vector<std::string> devices);
// What the nodes and spares of its newest attempt come to; shared spares count for no job.
Amounts AmountsOf(const JobEntry& job);
// What a node of its newest attempt, or a spare, holds in full.
HeldResources HeldOn(const JobEntry& job, const NodeName& node);
HeldResources HeldAt(const JobEntry& job, std::size_t place);
// Whether the node has these beside what jobs have for themselves alone, and what has leaked.
bool HasBesideOwn(const State& state, const NodeEntry& node, const HeldResources& held);

// The node reports other devices than `before`. The first node that reports a device has it; the
// next one gets it once that node is lost and nothing there holds it, or reports it no more.
// Returns a sentence for each that another node has.
std::vector<std::string> ClaimDevices(State& state, const NodeEntry& node,
                                      const std::vector<Device>& before);
// The node's devices that another node has, with that node.
std::map<std::string, NodeName> DevicesOfOthers(const State& state, const NodeEntry& node);
// Whether another node reports one of its devices too.
bool SharesDevices(const State& state, const NodeEntry& node);
// The node is forgotten.
void GiveUpDevices(State& state, const NodeEntry& node);

}  // namespace muster::control
