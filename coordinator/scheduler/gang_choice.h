// Which nodes a gang gets, of those that have room for it from a point of time on.
//
// PlannedNode is a node as a scheduler pass sees it: what is free of it now and later, less what
// the pass has given away and reserved. Fit is one request beside all nodes, for a gang that starts
// at one time.
//
// Values of one pass; one thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "coordinator/scheduler/gang_request.h"
#include "coordinator/scheduler/node_fit.h"
#include "coordinator/scheduler/step_function.h"
#include "coordinator/scheduler/wait_reason.h"

namespace muster {

struct PlannedNode {
  const NodeCapacity& capacity;
  StepFunction<NodeParts> free;
  // Held by shared spares for as long as anyone knows.
  NodeParts shared = {};
  NodeParts lent = {};
  // Jobs that wait for parts of it, whose requests outlive the pass; nullptr: none. The last one
  // that has had its turn, and the last one that was promised parts, whose turn may come later.
  const JobId* reserved_for = nullptr;
  const JobId* promised_to = nullptr;

  const NodeInventory& inventory() const { return *capacity.inventory; }
  // Where its parts are free now, but for too short a time: for whom.
  JobId ReservedFor() const {
    const JobId* job = reserved_for == nullptr ? promised_to : reserved_for;
    return job == nullptr ? JobId() : *job;
  }
};

// All nodes of a pass in the order of their names, "n2" before "n10". They stay where they are; a
// copy has nodes of its own.
class PlannedNodes {
 public:
  // What is free now stays free. The capacities outlive them.
  PlannedNodes(const std::vector<NodeCapacity>& capacities, TimePoint now);

  PlannedNodes(const PlannedNodes&) = default;
  PlannedNodes& operator=(const PlannedNodes&) = delete;

  // nullptr: there is none.
  const PlannedNode* Find(const NodeName& name) const;
  PlannedNode* Find(const NodeName& name);
  auto begin() { return nodes_.begin(); }
  auto end() { return nodes_.end(); }
  auto begin() const { return nodes_.begin(); }
  auto end() const { return nodes_.end(); }
  std::size_t size() const { return nodes_.size(); }
  const PlannedNode& operator[](std::size_t i) const { return nodes_[i]; }
  std::size_t IndexOf(const PlannedNode& node) const {
    return static_cast<std::size_t>(&node - nodes_.data());
  }

 private:
  std::size_t SlotOf(const NodeName& name) const;

  std::vector<PlannedNode> nodes_;
  // A hash table of names with open addressing, half full at most: a node's place, from 1 on.
  std::vector<std::uint32_t> slots_;
};

// What the nodes are to each demand. A queue of thousands of jobs has few different ones.
class MatchTable {
 public:
  // Outlived by the nodes.
  explicit MatchTable(const PlannedNodes& nodes) : nodes_(nodes) {}

  // Valid until a call with another demand.
  const std::vector<NodeMatch>& Of(const NodeDemand& demand);

 private:
  const PlannedNodes& nodes_;
  std::deque<std::pair<NodeDemand, std::vector<NodeMatch>>> table_;
};

// Which shared spares a gang may have as nodes, if it is recovering or preemptible.
enum class SpareReach {
  kNone,   // none: it does not start now, or nothing is known of its spares then
  kEmpty,  // as far as nothing runs there
  kLent,   // also where preemptible jobs run, which have to leave first
};
// What a gang has its parts of a node from.
enum class PartsFrom { kFree = 0, kShared, kLent };

class Fit {
 public:
  // All of them outlive it; `matches` are those of the request's demand.
  Fit(const GangRequest& request, const std::vector<NodeMatch>& matches, const PlannedNodes& nodes,
      TimePoint start, SpareReach reach = SpareReach::kNone);

  bool Excludes(const PlannedNode& node) const {
    return !excluded_.empty() && std::ranges::binary_search(excluded_, At(node));
  }
  // What is free suits a gang that recovers best, and a preemptible one worst.
  PartsFrom SourceOf(const PlannedNode& node) const;
  // What the job could have there as long as it runs.
  NodeParts Room(const PlannedNode& node) const {
    return may_use_spares_ ? RoomWithSpares(node) : Own(node);
  }
  // What it could have there for a moment.
  Lack LacksNow(const PlannedNode& node) const;
  Lack LacksEver(const PlannedNode& node) const;
  bool Fits(const PlannedNode& node) const {
    return !IsFull(node) && LackWith(node, Room(node)) == Lack::kNothing && !Excludes(node);
  }
  // Until when the node has room for a job that starts now; now: it has none.
  TimePoint FitsUntil(const PlannedNode& node) const;
  // How much of its demand the node lacks for as long as it runs: 0 if it fits, up to 1 for each of
  // slots, devices, processors and memory; infinite if the node could never hold it.
  double Missing(const PlannedNode& node) const;
  // When the job could start there, in order: calls `found(TimeSpan)` for each span.
  template <typename Found>
  void EachStart(const PlannedNode& node, Found found) const {
    if (Excludes(node) || LacksEver(node) != Lack::kNothing) return;
    const auto ok = [&](const NodeParts& parts) {
      return LackWith(node, WithHeld(node, parts)) == Lack::kNothing;
    };
    node.free.EachStart(request_.length, Both, ok, found);
  }
  DeviceMask Devices(const PlannedNode& node) const;
  // Whether these devices, and the rest of the demand, are among its room.
  bool Has(const PlannedNode& node, DeviceMask devices) const;
  // What of the node is free for ever, as far as the job needs it.
  NodeParts Collectable(const PlannedNode& node) const;
  // Takes that, and what more of the demand becomes free later.
  void Collect(PlannedNode& node) const;
  // Takes the demand with these devices out of what is free from the start until the job's end, or
  // gives it back.
  void Take(PlannedNode& node, DeviceMask devices) const;
  void GiveBack(PlannedNode& node, DeviceMask devices) const;

  // The node as a spare that the job shares with others: whether it has room beside what is held
  // for them, whether that is enough for this job too, and taking what more it needs.
  bool FitsSpare(const PlannedNode& node) const;
  bool IsSpareEnough(const PlannedNode& node) const;
  DeviceMask TakeSpare(PlannedNode& node) const;

 private:
  using HeldAt = std::pair<std::size_t, const HeldParts*>;

  std::size_t At(const PlannedNode& node) const { return nodes_.IndexOf(node); }
  const NodeMatch& MatchOf(const PlannedNode& node) const { return matches_[At(node)]; }
  Lack LackWith(const PlannedNode& node, const NodeParts& parts) const {
    return LackOf(request_.demand, node.inventory(), MatchOf(node), parts);
  }
  const HeldParts* Held(const PlannedNode& node) const;  // nullptr: nothing
  // The parts, if they are lent as `lent` says; nullptr: there are none such.
  const NodeParts* Held(const PlannedNode& node, bool lent) const;
  NodeParts WithHeld(const PlannedNode& node, NodeParts parts) const {
    if (held_.empty()) return parts;
    if (const NodeParts* held = Held(node, /*lent=*/false)) Add(parts, *held);
    return parts;
  }
  // It has too little at the start, which is enough to say for most nodes of a full cluster.
  bool IsFull(const PlannedNode& node) const {
    if (start_ > node.free.begin() || may_use_spares_ || !held_.empty()) return false;
    const NodeParts& free = node.free.first();
    return free.slots < request_.demand.ranks ||
           (request_.demand.devices.per_rank > 0 &&
            std::popcount(free.devices & MatchOf(node).suitable) < request_.demand.device_count());
  }
  NodeParts Own(const PlannedNode& node) const;
  NodeParts RoomWithSpares(const PlannedNode& node) const;
  NodeParts Demanded(const PlannedNode& node, DeviceMask devices) const;
  void TakeShared(PlannedNode& node, DeviceMask devices, PartsFrom source) const;
  NodeParts Part(const PlannedNode& node, const NodeParts& free, DeviceMask preferred) const;

  const GangRequest& request_;
  const std::vector<NodeMatch>& matches_;
  const PlannedNodes& nodes_;
  TimePoint start_, end_;
  SpareReach reach_;
  bool may_use_spares_;
  std::vector<std::size_t> excluded_;
  std::vector<HeldAt> held_;
};

// Why the gang does not start, but for ceilings. `without_room(node, lack)` gets the nodes that
// could hold a part of it and have no room now: what they lack, or nothing where it has too little
// time.
template <typename WithoutRoom>
WaitReason ReasonOf(const GangRequest& request, const Fit& fit, const PlannedNodes& nodes,
                    TimePoint at, WithoutRoom without_room) {
  WaitReason reason{.nodes = request.least(), .demand = request.demand};
  std::map<std::string_view, int> places;
  for (const PlannedNode& node : nodes) {
    if (node.capacity.usable_from > at) continue;
    ++reason.ready;
    if (fit.Excludes(node)) {
      ++reason.excluded;
    } else if (const Lack ever = fit.LacksEver(node); ever != Lack::kNothing) {
      ++Count(reason.unsuited, ever);
    } else if (fit.Fits(node)) {
      ++reason.with_room;
      const int together = ++places[PlaceOf(node.inventory(), request.demand.topology.within)];
      reason.in_one_place = std::max(reason.in_one_place, together);
    } else {
      const Lack now = fit.LacksNow(node);
      without_room(node, now);
      const bool for_another = node.reserved_for != nullptr && *node.reserved_for != request.job;
      if (now == Lack::kNothing || for_another) {
        ++reason.reserved;
        reason.reserved_for = node.ReservedFor();
      } else {
        ++Count(reason.occupied, now);
      }
    }
  }
  return reason;
}

struct GangChoice {
  std::vector<PlannedNode*> nodes;
  std::vector<PlannedNode*> spares;
};

// Former nodes keep their node rank if the gang is whole, and their order if it is not. Nothing:
// fewer than the least have room.
std::optional<GangChoice> Choose(const GangRequest& request, const Fit& fit, PlannedNodes& nodes);

// Where the job collects what becomes free, if no end of what it waits for is known: the nodes that
// lack least. Empty: the nodes could not hold it if they were empty.
std::vector<PlannedNode*> NodesToCollect(const GangRequest& request, const Fit& fit,
                                         PlannedNodes& nodes);

}  // namespace muster
