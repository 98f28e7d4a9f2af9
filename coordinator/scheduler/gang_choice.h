// Which nodes a gang gets, of those that have room for it from a point of time on.
//
// PlannedNode is a node as a scheduler pass sees it: what is free of it now and later, less what
// the pass has given away and reserved. Fit is one request beside all nodes, for a gang that starts
// at one time.
//
// Values of one pass; one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "coordinator/scheduler/gang_request.h"
#include "coordinator/scheduler/node_fit.h"
#include "coordinator/scheduler/step_function.h"

namespace muster {

struct PlannedNode {
  const NodeCapacity& capacity;
  StepFunction<NodeParts> free;
  // Held by shared spares for as long as anyone knows.
  NodeParts shared = {};
  NodeParts lent = {};
  std::optional<JobId> reserved_for = {};  // the last job that waits for parts of it

  const NodeInventory& inventory() const { return *capacity.inventory; }
};

// In the order of their names, "n2" before "n10"; what is free now stays free. The capacities
// outlive them.
std::vector<PlannedNode> NodesInOrder(const std::vector<NodeCapacity>& capacities, TimePoint now);
// The node of that name; nodes are in the order of their names. nullptr: there is none.
PlannedNode* FindNode(std::vector<PlannedNode>& nodes, const NodeName& name);

// What the nodes are to each demand. A queue of thousands of jobs has few different ones.
class MatchTable {
 public:
  // Outlived by the nodes.
  explicit MatchTable(const std::vector<PlannedNode>& nodes) : nodes_(nodes) {}

  // Valid until the next call.
  const std::vector<NodeMatch>& Of(const NodeDemand& demand);

 private:
  const std::vector<PlannedNode>& nodes_;
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
  Fit(const GangRequest& request, const std::vector<NodeMatch>& matches,
      std::vector<PlannedNode>& nodes, TimePoint start, SpareReach reach = SpareReach::kNone);

  bool Excludes(const PlannedNode& node) const;
  // What is free suits a gang that recovers best, and a preemptible one worst.
  PartsFrom SourceOf(const PlannedNode& node) const;
  // What the job could have there as long as it runs.
  NodeParts Room(const PlannedNode& node) const;
  // What it could have there for a moment.
  Lack LacksNow(const PlannedNode& node) const;
  Lack LacksEver(const PlannedNode& node) const;
  bool Fits(const PlannedNode& node) const;
  // Until when the node has room for a job that starts now; now: it has none.
  TimePoint FitsUntil(const PlannedNode& node) const;
  // How much of its demand the node lacks for as long as it runs: 0 if it fits, up to 1 for each of
  // slots, devices, processors and memory; infinite if the node could never hold it.
  double Missing(const PlannedNode& node) const;
  // When the job could start there.
  std::vector<TimeSpan> Starts(const PlannedNode& node) const;
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
  using HeldAt = std::pair<std::ptrdiff_t, const HeldParts*>;

  std::ptrdiff_t At(const PlannedNode& node) const { return &node - first_; }
  const NodeMatch& MatchOf(const PlannedNode& node) const;
  Lack LackWith(const PlannedNode& node, const NodeParts& parts) const;
  const HeldParts* Held(const PlannedNode& node) const;  // nullptr: nothing
  // The parts, if they are lent as `lent` says; nullptr: there are none such.
  const NodeParts* Held(const PlannedNode& node, bool lent) const;
  NodeParts WithHeld(const PlannedNode& node, NodeParts parts) const;
  bool IsFull(const PlannedNode& node) const;
  bool MayUseSpares() const;
  NodeParts Own(const PlannedNode& node) const;
  NodeParts Demanded(const PlannedNode& node, DeviceMask devices) const;
  void TakeShared(PlannedNode& node, DeviceMask devices, PartsFrom source) const;
  NodeParts Part(const PlannedNode& node, const NodeParts& free, DeviceMask preferred) const;

  const GangRequest& request_;
  const std::vector<NodeMatch>& matches_;
  const PlannedNode* first_;
  TimePoint start_, end_;
  SpareReach reach_;
  std::vector<std::ptrdiff_t> excluded_;
  std::vector<HeldAt> held_;
};

struct GangChoice {
  std::vector<PlannedNode*> nodes;
  std::vector<PlannedNode*> spares;
};

// Former nodes keep their node rank if the gang is whole, and their order if it is not. Nothing:
// fewer than the least have room.
std::optional<GangChoice> Choose(const GangRequest& request, const Fit& fit,
                                 std::vector<PlannedNode>& nodes);

// Where the job collects what becomes free, if no end of what it waits for is known: the nodes that
// lack least. Empty: the nodes could not hold it if they were empty.
std::vector<PlannedNode*> NodesToCollect(const GangRequest& request, const Fit& fit,
                                         std::vector<PlannedNode>& nodes);

}  // namespace muster
