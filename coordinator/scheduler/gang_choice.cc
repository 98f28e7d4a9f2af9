#include "coordinator/scheduler/gang_choice.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <string_view>
#include <tuple>

#include "coordinator/scheduler/failure_domains.h"

namespace muster {
namespace {

// "n2" before "n10", in numeric order.
auto NameOrder(const NodeName& name) {
  return std::tuple(name.value.size(), std::string_view(name.value));
}

// By name, with the nodes of one failure domain next to each other, because collectives go from
// each node to the next. A domain's place is that of its first node.
void SortForRanks(std::vector<PlannedNode*>& nodes) {
  std::sort(nodes.begin(), nodes.end(), [](const PlannedNode* a, const PlannedNode* b) {
    return NameOrder(a->capacity.name) < NameOrder(b->capacity.name);
  });
  std::map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < nodes.size(); ++i) place.emplace(nodes[i]->capacity.domain, i);
  std::stable_sort(nodes.begin(), nodes.end(),
                   [&place](const PlannedNode* a, const PlannedNode* b) {
                     return place.at(a->capacity.domain) < place.at(b->capacity.domain);
                   });
}

// Chooses up to `wanted` of them, the best first by `order(node)`, then by `domain_order(domain)`,
// and of equal ones the first. Only the order of a domain may change, when a node of it is taken:
// `taken` receives each choice before the next one is made. In the order of SortForRanks.
template <typename Order, typename DomainOrder, typename Taken>
std::vector<PlannedNode*> Best(const std::vector<PlannedNode*>& fitting, std::size_t wanted,
                               Order order, DomainOrder domain_order, Taken taken) {
  if (wanted == 0 || fitting.empty()) return {};
  if (wanted == 1) {  // a recovery that lacks one node of thousands
    PlannedNode* best = *std::ranges::min_element(fitting, {}, [&](PlannedNode* node) {
      return std::pair(order(*node), domain_order(node->capacity.domain));
    });
    taken(*best);
    return {best};
  }
  using Place = std::pair<decltype(order(*fitting[0])), std::size_t>;
  std::map<std::string_view, std::vector<Place>> domains;
  for (std::size_t at = 0; at < fitting.size(); ++at)
    domains[fitting[at]->capacity.domain].emplace_back(order(*fitting[at]), at);
  // The best node of each domain.
  const auto front = [&](std::vector<Place>& places) {
    const auto& [best, at] = places.back();
    return std::tuple(best, domain_order(fitting[at]->capacity.domain), at, &places);
  };
  using Front = decltype(front(domains.begin()->second));
  std::priority_queue<Front, std::vector<Front>, std::greater<>> fronts;
  for (auto& [domain, places] : domains) {
    if (places.size() > wanted) {  // no more of one domain are taken
      std::ranges::nth_element(places, places.begin() + static_cast<std::ptrdiff_t>(wanted));
      places.resize(wanted);
    }
    std::ranges::sort(places, std::greater<>());  // the best is the last
    fronts.push(front(places));
  }
  std::vector<PlannedNode*> best;
  while (best.size() < wanted && !fronts.empty()) {
    std::vector<Place>& places = *std::get<3>(fronts.top());
    fronts.pop();
    best.push_back(fitting[places.back().second]);
    taken(*best.back());
    places.pop_back();
    if (!places.empty()) fronts.push(front(places));
  }
  SortForRanks(best);
  return best;
}

// 0 for nodes that the job prefers.
int Preference(const GangRequest& request, const PlannedNode& node) {
  const auto& names = request.preferred;
  return std::find(names.begin(), names.end(), node.capacity.name) == names.end() ? 1 : 0;
}

// The preferred nodes, then the fullest, so that large gaps stay whole for large gangs.
std::vector<PlannedNode*> BestForGang(const GangRequest& request, const Fit& fit,
                                      const std::vector<PlannedNode*>& fitting, std::size_t wanted,
                                      DomainCount& gang) {
  return Best(
      fitting, wanted,
      [&](const PlannedNode& node) {
        const NodeParts room = fit.Room(node);
        const PartsFrom source = fit.SourceOf(node);
        // Others cannot have what is lent.
        const bool takes = source == (request.preemptible ? PartsFrom::kFree : PartsFrom::kShared);
        return std::tuple(source == PartsFrom::kLent, Preference(request, node), takes,
                          std::popcount(room.devices), room.slots);
      },
      [&](const std::string& domain) { return gang.AlikeWith(domain, request.nodes); },
      [&](const PlannedNode& node) { gang.Add(node.capacity.domain); });
}

std::vector<PlannedNode*> BestSpares(const GangRequest& request, const Fit& fit,
                                     const std::vector<PlannedNode*>& fitting,
                                     const DomainCount& gang) {
  return Best(
      fitting, static_cast<std::size_t>(request.spares),
      [&](const PlannedNode& node) {
        const NodeParts room = fit.Room(node);
        const bool costs = request.share_spares && !fit.IsSpareEnough(node);
        return std::tuple(costs, Preference(request, node), gang.Of(node.capacity.domain),
                          std::popcount(room.devices), room.slots);
      },
      [](const std::string&) { return 0; }, [](const PlannedNode&) {});
}

void EraseAll(std::vector<PlannedNode*>& nodes, const std::vector<PlannedNode*>& which) {
  std::vector<const PlannedNode*> gone(which.begin(), which.end());
  std::erase(gone, nullptr);
  if (gone.empty()) return;
  std::ranges::sort(gone);
  std::erase_if(
      nodes, [&gone](const PlannedNode* node) { return std::ranges::binary_search(gone, node); });
}

// Beside a gang in `gang`: nodes in its own place, or any if it need not stay there and has none.
std::vector<PlannedNode*> InPlaceOfGang(const GangRequest& request,
                                        const std::vector<PlannedNode*>& fitting,
                                        const std::string& gang) {
  const TopologyDemand& topology = request.demand.topology;
  std::vector<PlannedNode*> near;
  for (PlannedNode* node : fitting) {
    const std::string& place = PlaceOf(node->inventory(), topology.within);
    if (!place.empty() && place == gang) near.push_back(node);
  }
  return near.empty() && !topology.required ? fitting : near;
}

// Those of the nodes that a gang may have together, if it must be in one place or should be: the
// place with the most of its former nodes, where it is whole, with the least room left over. All of
// them if it need not be in one place, and cannot be as a whole.
std::vector<PlannedNode*> InOnePlace(const GangRequest& request,
                                     std::vector<PlannedNode*> fitting) {
  const TopologyDemand& topology = request.demand.topology;
  if (topology.within == TopologyLevel::kNone) return fitting;
  if (request.nodes == 0) return InPlaceOfGang(request, fitting, request.place);
  struct Place {
    std::vector<PlannedNode*> nodes;
    int former = 0;
  };
  std::map<std::string_view, Place> places;
  const std::set<NodeName> former(request.former_nodes.begin(), request.former_nodes.end());
  for (PlannedNode* node : fitting) {
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
  if (places.empty()) return topology.required ? std::vector<PlannedNode*>() : fitting;
  const auto cost = [&](const auto& place) {
    const auto size = static_cast<int>(place.second.nodes.size());
    return std::tuple(-place.second.former, size < request.nodes,
                      size < request.nodes ? -size : size);
  };
  return std::ranges::min_element(places, {}, cost)->second.nodes;
}

// What the job may share with others, and what is free, beside these nodes of its gang.
std::vector<PlannedNode*> SharedSpares(const GangRequest& request, const Fit& fit,
                                       PlannedNodes& nodes, const std::vector<PlannedNode*>& gang) {
  std::vector<PlannedNode*> fitting;
  for (PlannedNode& node : nodes)
    if (fit.FitsSpare(node)) fitting.push_back(&node);
  EraseAll(fitting, gang);
  const TopologyLevel within = request.demand.topology.within;
  if (within == TopologyLevel::kNone) return fitting;
  return InPlaceOfGang(request, fitting,
                       gang.empty() ? request.place : PlaceOf(gang.front()->inventory(), within));
}

}  // namespace

PlannedNodes::PlannedNodes(const std::vector<NodeCapacity>& capacities, TimePoint now)
    : slots_(std::bit_ceil(2 * capacities.size() + 1)) {
  std::vector<const NodeCapacity*> order;
  order.reserve(capacities.size());
  for (const NodeCapacity& capacity : capacities) order.push_back(&capacity);
  // A pass is given them in the order of the bytes of their names: then the lengths alone are left.
  const auto length = [](const NodeCapacity* capacity) { return capacity->name.value.size(); };
  const auto by_name = [](const NodeCapacity* capacity) { return NameOrder(capacity->name); };
  if (!std::ranges::is_sorted(order, {}, length)) std::ranges::stable_sort(order, {}, length);
  if (!std::ranges::is_sorted(order, {}, by_name)) std::ranges::sort(order, {}, by_name);
  nodes_.reserve(order.size());
  for (const NodeCapacity* capacity : order) {
    slots_[SlotOf(capacity->name)] = static_cast<std::uint32_t>(nodes_.size()) + 1;
    nodes_.push_back({.capacity = *capacity, .free = {now, capacity->free}});
    PlannedNode& node = nodes_.back();
    if (capacity->usable_from > now) {
      node.free.Apply(now, capacity->usable_from, [](NodeParts& free) { free = {}; });
    } else {
      node.shared = capacity->shared;
      node.lent = capacity->lent;
    }
  }
}

// The name's, or the empty one where it would be.
std::size_t PlannedNodes::SlotOf(const NodeName& name) const {
  std::size_t slot = std::hash<NodeName>()(name) & (slots_.size() - 1);
  while (slots_[slot] != 0 && nodes_[slots_[slot] - 1].capacity.name != name)
    slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

const PlannedNode* PlannedNodes::Find(const NodeName& name) const {
  const std::uint32_t place = slots_[SlotOf(name)];
  return place == 0 ? nullptr : &nodes_[place - 1];
}

PlannedNode* PlannedNodes::Find(const NodeName& name) {
  const std::uint32_t place = slots_[SlotOf(name)];
  return place == 0 ? nullptr : &nodes_[place - 1];
}

const std::vector<NodeMatch>& MatchTable::Of(const NodeDemand& demand) {
  constexpr std::size_t kKept = 64;
  for (const auto& [known, matches] : table_)
    if (known == demand) return matches;
  if (table_.size() == kKept) table_.pop_front();
  std::vector<NodeMatch>& matches = table_.emplace_back(demand, std::vector<NodeMatch>()).second;
  for (const PlannedNode& node : nodes_) matches.push_back(Match(demand, node.inventory()));
  return matches;
}

Fit::Fit(const GangRequest& request, const std::vector<NodeMatch>& matches,
         const PlannedNodes& nodes, TimePoint start, SpareReach reach)
    : request_(request),
      matches_(matches),
      nodes_(nodes),
      start_(start),
      end_(EndOf(start, request.length)),
      reach_(reach),
      may_use_spares_(reach != SpareReach::kNone &&
                      ((request.recovering && request.share_spares) || request.preemptible)) {
  for (const NodeName& name : request.exclude)
    if (const PlannedNode* node = nodes.Find(name)) excluded_.push_back(At(*node));
  for (const HeldParts& held : request.held)
    if (const PlannedNode* node = nodes.Find(held.node)) held_.emplace_back(At(*node), &held);
  std::ranges::sort(excluded_);
  std::ranges::sort(held_, {}, &HeldAt::first);
}

const HeldParts* Fit::Held(const PlannedNode& node) const {
  if (held_.empty()) return nullptr;
  const auto held = std::ranges::lower_bound(held_, At(node), {}, &HeldAt::first);
  return held == held_.end() || held->first != At(node) ? nullptr : held->second;
}

const NodeParts* Fit::Held(const PlannedNode& node, bool lent) const {
  const HeldParts* held = Held(node);
  if (held == nullptr || held->lent != lent) return nullptr;
  // Another job that recovers has it already.
  return lent && node.lent.slots < held->parts.slots ? nullptr : &held->parts;
}

NodeParts Fit::Own(const PlannedNode& node) const {
  return WithHeld(node, node.free.Over(start_, end_, Both));
}

PartsFrom Fit::SourceOf(const PlannedNode& node) const {
  if (!may_use_spares_) return PartsFrom::kFree;
  const auto fits = [&](const NodeParts& parts) { return LackWith(node, parts) == Lack::kNothing; };
  if (request_.preemptible) {
    NodeParts parts = node.shared;
    if (const NodeParts* held = Held(node, /*lent=*/true)) Add(parts, *held);
    return fits(parts) ? PartsFrom::kShared : PartsFrom::kFree;
  }
  NodeParts parts = Own(node);
  if (fits(parts)) return PartsFrom::kFree;
  Add(parts, node.shared);
  if (fits(parts)) return PartsFrom::kShared;
  Add(parts, node.lent);
  return reach_ == SpareReach::kLent && fits(parts) ? PartsFrom::kLent : PartsFrom::kFree;
}

NodeParts Fit::RoomWithSpares(const PlannedNode& node) const {
  const PartsFrom source = SourceOf(node);
  if (source == PartsFrom::kFree) return Own(node);
  NodeParts room = node.shared;
  if (request_.preemptible) {
    if (const NodeParts* held = Held(node, /*lent=*/true)) Add(room, *held);
    return room;
  }
  Add(room, Own(node));
  if (source == PartsFrom::kLent) Add(room, node.lent);
  return room;
}

Lack Fit::LacksNow(const PlannedNode& node) const {
  return LackWith(node, WithHeld(node, node.free.first()));
}

Lack Fit::LacksEver(const PlannedNode& node) const { return LackWith(node, node.capacity.all); }

TimePoint Fit::FitsUntil(const PlannedNode& node) const {
  if (Excludes(node)) return start_;
  NodeParts room = node.free.first();
  for (std::size_t i = 0; i < node.free.size(); ++i) {
    room = Both(room, node.free.at(i).value);
    if (LackWith(node, WithHeld(node, room)) != Lack::kNothing) return node.free.at(i).from;
  }
  return kNever;
}

double Fit::Missing(const PlannedNode& node) const {
  if (Excludes(node) || LacksEver(node) != Lack::kNothing)
    return std::numeric_limits<double>::infinity();
  const NodeParts room = Room(node);
  if (LackWith(node, room) == Lack::kNothing) return 0;
  const NodeDemand& demand = request_.demand;
  const auto lack = [](double has, double needs) { return has < needs ? 1 - has / needs : 0; };
  double sum = lack(room.slots, demand.ranks) +
               lack(std::popcount(room.devices & MatchOf(node).suitable), demand.device_count());
  if (node.inventory().cpus > 0) sum += lack(room.cpus, demand.cpus());
  if (node.inventory().memory_bytes > 0)
    sum += lack(static_cast<double>(room.memory_bytes), static_cast<double>(demand.memory_bytes()));
  constexpr double kLeast = 1e-6;  // what it lacks is no amount
  return std::max(sum, kLeast);
}

DeviceMask Fit::Devices(const PlannedNode& node) const {
  const int count = request_.demand.device_count();
  if (count == 0) return 0;
  const HeldParts* held = Held(node);
  return ChooseDevices(count, node.inventory(), Room(node).devices & MatchOf(node).suitable,
                       held == nullptr ? 0 : held->parts.devices);
}

// What of `free` the demand is, in part or whole.
NodeParts Fit::Part(const PlannedNode& node, const NodeParts& free, DeviceMask preferred) const {
  const NodeDemand& demand = request_.demand;
  const DeviceMask suitable = free.devices & MatchOf(node).suitable;
  return {.slots = std::clamp(free.slots, 0, demand.ranks),
          .devices = ChooseDevices(std::min(demand.device_count(), std::popcount(suitable)),
                                   node.inventory(), suitable, preferred),
          .cpus = std::clamp(free.cpus, 0, demand.cpus()),
          .memory_bytes = std::min(free.memory_bytes, demand.memory_bytes())};
}

NodeParts Fit::Collectable(const PlannedNode& node) const {
  return Part(node, node.free.Over(start_, kNever, Both), 0);
}

void Fit::Collect(PlannedNode& node) const {
  DeviceMask devices = Collectable(node).devices;
  node.free.Apply(start_, kNever, [&](NodeParts& free) {
    const NodeParts part = Part(node, free, devices);
    devices |= part.devices;
    free.slots -= part.slots;
    free.devices &= ~part.devices;
    free.cpus -= part.cpus;
    free.memory_bytes -= part.memory_bytes;
  });
}

bool Fit::Has(const PlannedNode& node, DeviceMask devices) const {
  const NodeParts room = Room(node);
  return LackWith(node, room) == Lack::kNothing && !Excludes(node) &&
         (devices & ~(room.devices & MatchOf(node).suitable)) == 0 &&
         std::popcount(devices) == request_.demand.device_count();
}

NodeParts Fit::Demanded(const PlannedNode& node, DeviceMask devices) const {
  const NodeDemand& demand = request_.demand;
  // A node that reports no memory has none to take.
  const bool counts_memory = node.inventory().memory_bytes > 0;
  return {.slots = demand.ranks,
          .devices = devices,
          .cpus = demand.cpus(),
          .memory_bytes = counts_memory ? demand.memory_bytes() : 0};
}

void Fit::Take(PlannedNode& node, DeviceMask devices) const {
  const PartsFrom source = SourceOf(node);
  if (const NodeParts* held = Held(node, /*lent=*/false)) {
    node.free.Apply(start_, kNever, [&](NodeParts& free) { Add(free, *held); });
  }
  if (source != PartsFrom::kFree) return TakeShared(node, devices, source);
  const NodeParts parts = Demanded(node, devices);
  node.free.Apply(start_, end_, [&](NodeParts& free) { free = Less(free, parts); });
}

// A preemptible gang's parts stay what spares hold; one that recovers takes them from the spares,
// and what they lack from what is free.
void Fit::TakeShared(PlannedNode& node, DeviceMask devices, PartsFrom source) const {
  const NodeParts parts = Demanded(node, devices);
  if (request_.preemptible) {
    if (const NodeParts* held = Held(node, /*lent=*/true)) {
      Add(node.shared, *held);
      node.lent = Less(node.lent, *held);
    }
    node.shared = Less(node.shared, parts);
    return Add(node.lent, parts);
  }
  if (source == PartsFrom::kLent) Add(node.shared, std::exchange(node.lent, {}));
  const NodeParts rest = Less(parts, Both(parts, node.shared));
  node.shared = AtLeastNone(Less(node.shared, parts));
  node.free.Apply(start_, end_, [&](NodeParts& free) { free = Less(free, rest); });
}

void Fit::GiveBack(PlannedNode& node, DeviceMask devices) const {
  const NodeParts parts = Demanded(node, devices);
  node.free.Apply(start_, end_, [&](NodeParts& free) { Add(free, parts); });
}

bool Fit::FitsSpare(const PlannedNode& node) const {
  NodeParts parts = Own(node);
  Add(parts, node.shared);
  Add(parts, node.lent);
  return LackWith(node, parts) == Lack::kNothing && !Excludes(node);
}

bool Fit::IsSpareEnough(const PlannedNode& node) const {
  NodeParts parts = node.shared;
  Add(parts, node.lent);
  return LackWith(node, parts) == Lack::kNothing;
}

DeviceMask Fit::TakeSpare(PlannedNode& node) const {
  NodeParts held = node.shared;
  Add(held, node.lent);
  const DeviceMask room = (Own(node).devices | held.devices) & MatchOf(node).suitable;
  const DeviceMask devices =
      ChooseDevices(request_.demand.device_count(), node.inventory(), room, held.devices);
  const NodeParts more = AtLeastNone(Less(Demanded(node, devices), held));
  if (const NodeParts* parked = Held(node, /*lent=*/false))
    node.free.Apply(start_, kNever, [&](NodeParts& free) { Add(free, *parked); });
  Add(node.shared, more);
  node.free.Apply(start_, end_, [&](NodeParts& free) { free = Less(free, more); });
  return devices;
}

std::optional<GangChoice> Choose(const GangRequest& request, const Fit& fit, PlannedNodes& nodes) {
  std::vector<PlannedNode*> fitting;
  for (PlannedNode& node : nodes) {
    if (fit.Fits(node)) fitting.push_back(&node);
  }
  fitting = InOnePlace(request, std::move(fitting));
  if (fitting.size() < static_cast<std::size_t>(request.least())) return std::nullopt;

  DomainCount gang;
  for (const std::string& domain : request.domains) gang.Add(domain);
  std::vector<PlannedNode*> places(static_cast<std::size_t>(request.nodes), nullptr);
  std::map<NodeName, PlannedNode*> by_name;
  if (!request.former_nodes.empty()) {
    for (PlannedNode* node : fitting) by_name.emplace(node->capacity.name, node);
  }
  for (std::size_t i = 0; i < std::min(places.size(), request.former_nodes.size()); ++i) {
    const auto found = by_name.extract(request.former_nodes[i]);
    if (found.empty()) continue;
    places[i] = found.mapped();
    gang.Add(places[i]->capacity.domain);
  }
  EraseAll(fitting, places);
  const auto empty = static_cast<std::size_t>(std::count(places.begin(), places.end(), nullptr));
  const std::vector<PlannedNode*> fresh = BestForGang(request, fit, fitting, empty, gang);
  std::size_t next = 0;
  for (PlannedNode*& place : places) {
    if (place == nullptr && next < fresh.size()) place = fresh[next++];
  }
  std::erase(places, nullptr);
  EraseAll(fitting, fresh);
  if (request.share_spares && request.spares > 0)
    fitting = SharedSpares(request, fit, nodes, places);
  std::vector<PlannedNode*> spares = BestSpares(request, fit, fitting, gang);
  return GangChoice{std::move(places), std::move(spares)};
}

std::vector<PlannedNode*> NodesToCollect(const GangRequest& request, const Fit& fit,
                                         PlannedNodes& nodes) {
  std::vector<PlannedNode*> usable;
  for (PlannedNode& node : nodes)
    if (!fit.Excludes(node) && fit.LacksEver(node) == Lack::kNothing) usable.push_back(&node);
  usable = InOnePlace(request, std::move(usable));
  const auto least = static_cast<std::size_t>(request.least());
  if (usable.size() < least) return {};
  // It stays where it has begun, or what it gives up there could be taken again and again.
  const std::set<NodeName> begun(request.collecting.begin(), request.collecting.end());
  const auto progress = [&](const PlannedNode* node) {
    const NodeParts parts = fit.Collectable(*node);
    return std::tuple(fit.Fits(*node), begun.contains(node->capacity.name),
                      std::popcount(parts.devices), parts.slots, parts.cpus, parts.memory_bytes);
  };
  std::ranges::stable_sort(usable, std::greater<>(), progress);
  usable.resize(least);
  return usable;
}

}  // namespace muster
