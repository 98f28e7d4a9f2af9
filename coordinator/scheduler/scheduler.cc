#include "coordinator/scheduler/scheduler.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "coordinator/scheduler/failure_domains.h"

namespace muster {
namespace {

struct Node {
  NodeCapacity capacity;
  std::optional<JobId> reserved_for = {};  // a job ahead in the queue waits for it

  const NodeInventory& inventory() const { return *capacity.inventory; }
};

// "n2" before "n10", in numeric order.
auto NameOrder(const NodeName& name) {
  return std::tuple(name.value.size(), std::string_view(name.value));
}

// The node of that name; nodes are in the order of their names. -1: there is none.
std::ptrdiff_t FindNode(const std::vector<Node>& nodes, const NodeName& name) {
  const auto order = [](const Node& node) { return NameOrder(node.capacity.name); };
  const auto found = std::ranges::lower_bound(nodes, NameOrder(name), {}, order);
  const bool is_it = found != nodes.end() && found->capacity.name == name;
  return is_it ? found - nodes.begin() : -1;
}

// A request beside all nodes.
class Fit {
 public:
  // Both outlive it.
  Fit(const GangRequest& request, const std::vector<NodeMatch>& matches,
      const std::vector<Node>& nodes)
      : demand_(request.demand), matches_(matches), first_(nodes.data()) {
    for (const NodeName& name : request.exclude)
      if (const auto at = FindNode(nodes, name); at >= 0) excluded_.push_back(at);
    for (const HeldParts& held : request.held)
      if (const auto at = FindNode(nodes, held.node); at >= 0) held_.emplace_back(at, held.parts);
    std::ranges::sort(excluded_);
    std::ranges::sort(held_, {}, &HeldAt::first);
  }

  bool Excludes(const Node& node) const { return std::ranges::binary_search(excluded_, At(node)); }
  // What the job could have there.
  NodeParts Room(const Node& node) const {
    const NodeParts& free = node.capacity.free;
    const NodeParts* held = Held(node);
    if (held == nullptr) return free;
    return {.slots = held->slots + free.slots,
            .devices = held->devices | free.devices,
            .cpus = held->cpus + free.cpus,
            .memory_bytes = held->memory_bytes + free.memory_bytes};
  }
  Lack LacksNow(const Node& node) const {
    return LackOf(demand_, node.inventory(), MatchOf(node), Room(node));
  }
  Lack LacksEver(const Node& node) const {
    return LackOf(demand_, node.inventory(), MatchOf(node), node.capacity.all);
  }
  bool Fits(const Node& node) const {
    return !node.reserved_for && LacksNow(node) == Lack::kNothing && !Excludes(node);
  }
  DeviceMask Devices(const Node& node) const {
    if (demand_.device_count() == 0) return 0;
    const NodeParts* held = Held(node);
    return ChooseDevices(demand_.device_count(), node.inventory(),
                         Room(node).devices & MatchOf(node).suitable,
                         held == nullptr ? 0 : held->devices);
  }

 private:
  using HeldAt = std::pair<std::ptrdiff_t, NodeParts>;

  std::ptrdiff_t At(const Node& node) const { return &node - first_; }
  const NodeMatch& MatchOf(const Node& node) const {
    return matches_[static_cast<std::size_t>(At(node))];
  }
  // nullptr: nothing.
  const NodeParts* Held(const Node& node) const {
    const auto held = std::ranges::lower_bound(held_, At(node), {}, &HeldAt::first);
    return held == held_.end() || held->first != At(node) ? nullptr : &held->second;
  }

  const NodeDemand& demand_;
  const std::vector<NodeMatch>& matches_;
  const Node* first_;
  std::vector<std::ptrdiff_t> excluded_;
  std::vector<HeldAt> held_;
};

// What the nodes are to each demand. A queue of thousands of jobs has few different ones.
class MatchTable {
 public:
  explicit MatchTable(const std::vector<Node>& nodes) : nodes_(nodes) {}

  // Valid until the next call.
  const std::vector<NodeMatch>& Of(const NodeDemand& demand) {
    constexpr std::size_t kKept = 64;
    for (const auto& [known, matches] : table_)
      if (known == demand) return matches;
    if (table_.size() == kKept) table_.pop_front();
    std::vector<NodeMatch>& matches = table_.emplace_back(demand, std::vector<NodeMatch>()).second;
    for (const Node& node : nodes_) matches.push_back(Match(demand, node.inventory()));
    return matches;
  }

 private:
  const std::vector<Node>& nodes_;
  std::deque<std::pair<NodeDemand, std::vector<NodeMatch>>> table_;
};

// By name, with the nodes of one failure domain next to each other, because collectives go from
// each node to the next. A domain's place is that of its first node.
void SortForRanks(std::vector<Node*>& nodes) {
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) {
    return NameOrder(a->capacity.name) < NameOrder(b->capacity.name);
  });
  std::map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < nodes.size(); ++i) place.emplace(nodes[i]->capacity.domain, i);
  std::stable_sort(nodes.begin(), nodes.end(), [&place](const Node* a, const Node* b) {
    return place.at(a->capacity.domain) < place.at(b->capacity.domain);
  });
}

// Chooses up to `wanted` of them, the best first by `order`, and of equal ones the first. `order`
// may depend on how many nodes of the node's domain have been taken so far, and on nothing else
// that changes: `taken` receives each choice before the next one is made. In the order of
// SortForRanks.
template <typename Order, typename Taken>
std::vector<Node*> Best(const std::vector<Node*>& fitting, std::size_t wanted, Order order,
                        Taken taken) {
  if (wanted == 0 || fitting.empty()) return {};
  if (wanted == 1) {  // a recovery that lacks one node of thousands
    Node* best = *std::ranges::min_element(fitting, {}, [&](Node* node) { return order(*node); });
    taken(*best);
    return {best};
  }
  const auto place = [&](std::size_t at) { return std::pair(order(*fitting[at]), at); };
  std::map<std::string_view, std::vector<std::size_t>> domains;
  for (std::size_t at = 0; at < fitting.size(); ++at)
    domains[fitting[at]->capacity.domain].push_back(at);
  // The best node of each domain; the order of the others changes only when it is taken.
  using Front = std::pair<decltype(place(0)), std::vector<std::size_t>*>;
  std::priority_queue<Front, std::vector<Front>, std::greater<>> fronts;
  for (auto& [domain, nodes] : domains) {
    std::ranges::sort(nodes, std::greater<>(), place);  // the best is the last
    fronts.emplace(place(nodes.back()), &nodes);
  }
  std::vector<Node*> best;
  while (best.size() < wanted && !fronts.empty()) {
    std::vector<std::size_t>& nodes = *fronts.top().second;
    fronts.pop();
    best.push_back(fitting[nodes.back()]);
    taken(*best.back());
    nodes.pop_back();
    if (!nodes.empty()) fronts.emplace(place(nodes.back()), &nodes);
  }
  SortForRanks(best);
  return best;
}

// 0 for nodes that the job prefers.
int Preference(const GangRequest& request, const Node& node) {
  const auto& names = request.preferred;
  return std::find(names.begin(), names.end(), node.capacity.name) == names.end() ? 1 : 0;
}

// The preferred nodes, then the fullest, so that large gaps stay whole for large gangs.
std::vector<Node*> BestForGang(const GangRequest& request, const Fit& fit,
                               const std::vector<Node*>& fitting, std::size_t wanted,
                               DomainCount& gang) {
  return Best(
      fitting, wanted,
      [&](const Node& node) {
        const NodeParts room = fit.Room(node);
        return std::tuple(Preference(request, node), std::popcount(room.devices), room.slots,
                          gang.AlikeWith(node.capacity.domain, request.nodes));
      },
      [&](const Node& node) { gang.Add(node.capacity.domain); });
}

std::vector<Node*> BestSpares(const GangRequest& request, const Fit& fit,
                              const std::vector<Node*>& fitting, const DomainCount& gang) {
  return Best(
      fitting, static_cast<std::size_t>(request.spares),
      [&](const Node& node) {
        const NodeParts room = fit.Room(node);
        return std::tuple(Preference(request, node), gang.Of(node.capacity.domain),
                          std::popcount(room.devices), room.slots);
      },
      [](const Node&) {});
}

void EraseAll(std::vector<Node*>& nodes, const std::vector<Node*>& which) {
  const std::set<const Node*> gone(which.begin(), which.end());
  std::erase_if(nodes, [&gone](const Node* node) { return gone.contains(node); });
}

struct Choice {
  std::vector<Node*> nodes;
  std::vector<Node*> spares;
};

// Beside a running gang: nodes in its own place, or any if it need not stay there and has none.
std::vector<Node*> InPlaceOfGang(const GangRequest& request, const std::vector<Node*>& fitting) {
  const TopologyDemand& topology = request.demand.topology;
  std::vector<Node*> near;
  for (Node* node : fitting) {
    const std::string& place = PlaceOf(node->inventory(), topology.within);
    if (!place.empty() && place == request.place) near.push_back(node);
  }
  return near.empty() && !topology.required ? fitting : near;
}

// Those of the nodes that a gang may have together, if it must be in one place or should be: the
// place with the most of its former nodes, where it is whole, with the least room left over. All of
// them if it need not be in one place, and cannot be as a whole.
std::vector<Node*> InOnePlace(const GangRequest& request, std::vector<Node*> fitting) {
  const TopologyDemand& topology = request.demand.topology;
  if (topology.within == TopologyLevel::kNone) return fitting;
  if (request.nodes == 0) return InPlaceOfGang(request, fitting);
  struct Place {
    std::vector<Node*> nodes;
    int former = 0;
  };
  std::map<std::string_view, Place> places;
  const std::set<NodeName> former(request.former_nodes.begin(), request.former_nodes.end());
  for (Node* node : fitting) {
    const std::string& name = PlaceOf(node->inventory(), topology.within);
    if (name.empty()) continue;
    Place& place = places[name];
    place.nodes.push_back(node);
    place.former += former.contains(node->capacity.name) ? 1 : 0;
  }
  const int least = topology.required ? request.least() : request.nodes;
  std::erase_if(places, [&](const auto& place) {
    return place.second.nodes.size() < static_cast<std::size_t>(least);
  });
  if (places.empty()) return topology.required ? std::vector<Node*>() : fitting;
  const auto cost = [&](const auto& place) {
    const auto size = static_cast<int>(place.second.nodes.size());
    return std::tuple(-place.second.former, size < request.nodes,
                      size < request.nodes ? -size : size);
  };
  return std::ranges::min_element(places, {}, cost)->second.nodes;
}

// Former nodes keep their node rank if the gang is whole, and their order if it is not.
std::optional<Choice> Choose(const GangRequest& request, const Fit& fit, std::vector<Node>& nodes) {
  std::vector<Node*> fitting;
  for (Node& node : nodes) {
    if (fit.Fits(node)) fitting.push_back(&node);
  }
  fitting = InOnePlace(request, std::move(fitting));
  if (fitting.size() < static_cast<std::size_t>(request.least())) return std::nullopt;

  DomainCount gang;
  for (const std::string& domain : request.domains) gang.Add(domain);
  std::vector<Node*> places(static_cast<std::size_t>(request.nodes), nullptr);
  std::map<NodeName, Node*> by_name;
  if (!request.former_nodes.empty()) {
    for (Node* node : fitting) by_name.emplace(node->capacity.name, node);
  }
  for (std::size_t i = 0; i < std::min(places.size(), request.former_nodes.size()); ++i) {
    const auto found = by_name.extract(request.former_nodes[i]);
    if (found.empty()) continue;
    places[i] = found.mapped();
    gang.Add(places[i]->capacity.domain);
  }
  EraseAll(fitting, places);
  const auto empty = static_cast<std::size_t>(std::count(places.begin(), places.end(), nullptr));
  const std::vector<Node*> fresh = BestForGang(request, fit, fitting, empty, gang);
  std::size_t next = 0;
  for (Node*& place : places) {
    if (place == nullptr && next < fresh.size()) place = fresh[next++];
  }
  std::erase(places, nullptr);
  EraseAll(fitting, fresh);
  return Choice{std::move(places), BestSpares(request, fit, fitting, gang)};
}

// Takes a node's parts for the job, and returns the devices among them.
DeviceMask Take(const GangRequest& request, const Fit& fit, Node& node) {
  const NodeDemand& demand = request.demand;
  const DeviceMask devices = fit.Devices(node);
  NodeParts& free = node.capacity.free;
  free = fit.Room(node);
  free.slots -= demand.ranks;
  free.devices &= ~devices;
  free.cpus -= demand.cpus();
  free.memory_bytes -= std::min(free.memory_bytes, demand.memory_bytes());
  return devices;
}

WaitReason ReasonOf(const GangRequest& request, const Fit& fit, const std::vector<Node>& nodes) {
  WaitReason reason{.nodes = request.least(), .demand = request.demand};
  reason.ready = static_cast<int>(nodes.size());
  std::map<std::string_view, int> places;
  for (const Node& node : nodes) {
    if (fit.Excludes(node)) {
      ++reason.excluded;
    } else if (const Lack ever = fit.LacksEver(node); ever != Lack::kNothing) {
      ++Count(reason.unsuited, ever);
    } else if (const Lack now = fit.LacksNow(node); now != Lack::kNothing) {
      ++Count(reason.occupied, now);
    } else if (node.reserved_for) {
      ++reason.reserved;
      reason.reserved_for = *node.reserved_for;
    } else {
      ++reason.with_room;
      const int together = ++places[PlaceOf(node.inventory(), request.demand.topology.within)];
      reason.in_one_place = std::max(reason.in_one_place, together);
    }
  }
  return reason;
}

// The job can be placed once others end: jobs behind it may not take what it waits for. Returns
// whether that keeps any node.
bool KeepNodesFor(const GangRequest& request, const Fit& fit, std::vector<Node>& nodes) {
  std::vector<Node*> usable;
  for (Node& node : nodes) {
    if (!fit.Excludes(node) && !node.reserved_for && fit.LacksEver(node) == Lack::kNothing)
      usable.push_back(&node);
  }
  usable = InOnePlace(request, std::move(usable));
  if (usable.size() < static_cast<std::size_t>(request.least())) return false;
  for (Node* node : usable) node->reserved_for = request.job;
  return !usable.empty();
}

// Why jobs of a kind wait, until the nodes change: most jobs of a long queue are like others.
class KnownReasons {
 public:
  // Nothing: it may be placed.
  const WaitReason* Find(const GangRequest& request) const {
    if (!IsPlain(request)) return nullptr;
    for (const WaitReason& reason : reasons_)
      if (reason.nodes == request.least() && reason.demand == request.demand) return &reason;
    return nullptr;
  }
  void Add(const GangRequest& request, const WaitReason& reason) {
    constexpr std::size_t kKept = 64;
    if (IsPlain(request) && reasons_.size() < kKept) reasons_.push_back(reason);
  }
  void NodesChange() { reasons_.clear(); }

 private:
  // The nodes are to it what they are to every job with its demand.
  static bool IsPlain(const GangRequest& request) {
    return request.held.empty() && request.exclude.empty() && request.place.empty();
  }

  std::vector<WaitReason> reasons_;
};

std::vector<Node> InOrder(const std::vector<NodeCapacity>& capacities) {
  std::vector<Node> nodes;
  for (const NodeCapacity& capacity : capacities) nodes.push_back({.capacity = capacity});
  std::sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) {
    return NameOrder(a.capacity.name) < NameOrder(b.capacity.name);
  });
  return nodes;
}

}  // namespace

SchedulePlan Plan(const SchedulerSnapshot& snapshot) {
  std::vector<const GangRequest*> queue;
  for (const GangRequest& request : snapshot.requests) queue.push_back(&request);
  std::sort(queue.begin(), queue.end(), [](const GangRequest* a, const GangRequest* b) {
    auto order = [](const GangRequest& r) {
      return std::tuple(!r.recovering, -r.priority, r.submit_order);
    };
    return order(*a) < order(*b);
  });
  std::vector<Node> nodes = InOrder(snapshot.nodes);
  MatchTable matches(nodes);
  KnownReasons known;
  SchedulePlan plan;
  for (const GangRequest* request : queue) {
    if (const WaitReason* reason = known.Find(*request)) {
      plan.waiting.push_back({request->job, *reason});
      continue;
    }
    const Fit fit(*request, matches.Of(request->demand), nodes);
    const std::optional<Choice> choice = Choose(*request, fit, nodes);
    if (!choice) {
      plan.waiting.push_back({request->job, ReasonOf(*request, fit, nodes)});
      if (KeepNodesFor(*request, fit, nodes))
        known.NodesChange();
      else
        known.Add(*request, plan.waiting.back().reason);
      continue;
    }
    GangPlacement placement{.job = request->job};
    for (Node* node : choice->nodes) {
      placement.nodes.push_back(node->capacity.name);
      placement.node_devices.push_back(Take(*request, fit, *node));
    }
    for (Node* node : choice->spares) {
      placement.spares.push_back(node->capacity.name);
      placement.spare_devices.push_back(Take(*request, fit, *node));
    }
    if (placement.nodes.empty() && placement.spares.empty()) continue;
    known.NodesChange();
    plan.placements.push_back(std::move(placement));
  }
  return plan;
}

std::optional<NearestMiss> MissOf(const GangRequest& request, const NodeCapacity& node) {
  const NodeMatch match = Match(request.demand, *node.inventory);
  const Lack lack = LackOf(request.demand, *node.inventory, match, node.all);
  const bool excluded = std::ranges::find(request.exclude, node.name) != request.exclude.end();
  if (lack == Lack::kNothing && !excluded) return std::nullopt;
  return NearestMiss{.demand = request.demand,
                     .node = node.name,
                     .lack = lack,
                     .excluded = lack == Lack::kNothing,
                     .parts = node.all,
                     .suitable_devices = std::popcount(node.all.devices & match.suitable)};
}

bool IsNearer(const NearestMiss& a, const NearestMiss& b) {
  // The conditions are examined in their order: the later one fails, the nearer the node is.
  const auto nearness = [](const NearestMiss& miss) {
    return std::tuple(miss.excluded, miss.lack, miss.suitable_devices,
                      std::popcount(miss.parts.devices), miss.parts.slots, miss.parts.cpus,
                      miss.parts.memory_bytes);
  };
  return nearness(a) > nearness(b);
}

}  // namespace muster
