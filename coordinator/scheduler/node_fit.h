// What of one node a job can have: its devices, slots, processors and memory against a demand.
//
// Pure functions of plain values; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/resources/node_demand.h"
#include "common/resources/node_inventory.h"

namespace muster {

// A bit per device of a node, in the order of its inventory.
using DeviceMask = std::uint64_t;

// Parts of a node. Processors and memory of a node that reports none are not counted.
struct NodeParts {
  int slots = 0;
  DeviceMask devices = 0;
  int cpus = 0;
  std::uint64_t memory_bytes = 0;
};

inline void Add(NodeParts& parts, const NodeParts& more) {
  parts.slots += more.slots;
  parts.devices |= more.devices;
  parts.cpus += more.cpus;
  parts.memory_bytes += more.memory_bytes;
}
// What is in both, such as what is free in two spans of time.
inline NodeParts Both(const NodeParts& a, const NodeParts& b) {
  return {.slots = std::min(a.slots, b.slots),
          .devices = a.devices & b.devices,
          .cpus = std::min(a.cpus, b.cpus),
          .memory_bytes = std::min(a.memory_bytes, b.memory_bytes)};
}
// What is left without `part`; counts may become negative, memory may not.
inline NodeParts Less(const NodeParts& parts, const NodeParts& part) {
  return {.slots = parts.slots - part.slots,
          .devices = parts.devices & ~part.devices,
          .cpus = parts.cpus - part.cpus,
          .memory_bytes = parts.memory_bytes - std::min(parts.memory_bytes, part.memory_bytes)};
}
// Negative counts are none.
NodeParts AtLeastNone(const NodeParts& parts);

struct NodeCapacity {
  NodeName name;
  // Outlives the snapshot.
  const NodeInventory* inventory = nullptr;
  NodeParts all;   // that can be allocated, free or not
  NodeParts free;  // slots may be negative if more is counted than exists
  // Held by shared spares and not free: what nothing runs in, and what preemptible jobs have of it,
  // or had when the spares that held it were there.
  NodeParts shared;
  NodeParts lent;
  std::string domain;                        // nodes of one domain are expected to fail together
  TimePoint usable_from = TimePoint::min();  // before then nothing is placed there
};

// What a node lacks for a demand: the first that applies.
enum class Lack { kNothing = 0, kLabels, kDeviceKind, kDevices, kSlots, kCpus, kMemory, kPlace };
inline constexpr int kLackCount = 8;
std::string_view Name(Lack lack);  // nothing, labels, device_kind, devices, slots, ...
using LackCounts = std::array<int, kLackCount>;
inline int& Count(LackCounts& counts, Lack lack) { return counts[static_cast<std::size_t>(lack)]; }
inline int Count(const LackCounts& counts, Lack lack) {
  return counts[static_cast<std::size_t>(lack)];
}

// What follows from demand and inventory alone, whatever is free.
struct NodeMatch {
  Lack lack = Lack::kNothing;  // kLabels or kPlace
  DeviceMask suitable = 0;     // devices, as far as a single one can suit
};
NodeMatch Match(const NodeDemand& demand, const NodeInventory& inventory);

// What a node with these parts lacks.
inline Lack LackOf(const NodeDemand& demand, const NodeInventory& inventory, const NodeMatch& match,
                   const NodeParts& parts) {
  if (match.lack != Lack::kNothing) return match.lack;
  if (const int devices = demand.device_count(); devices > 0) {
    if (std::popcount(parts.devices) < devices) return Lack::kDevices;
    if (std::popcount(parts.devices & match.suitable) < devices) return Lack::kDeviceKind;
  }
  if (parts.slots < demand.ranks) return Lack::kSlots;
  if (inventory.cpus > 0 && parts.cpus < demand.cpus()) return Lack::kCpus;
  if (inventory.memory_bytes > 0 && parts.memory_bytes < demand.memory_bytes())
    return Lack::kMemory;
  return Lack::kNothing;
}

// `count` devices of `among`, which has as many: first those of `preferred`, then those within one
// link domain, with the fewest left over there.
DeviceMask ChooseDevices(int count, const NodeInventory& inventory, DeviceMask among,
                         DeviceMask preferred);

// The node's place at that level; empty: not known.
const std::string& PlaceOf(const NodeInventory& inventory, TopologyLevel level);
std::string_view Name(TopologyLevel level);  // none, block, rack, switch

}  // namespace muster
