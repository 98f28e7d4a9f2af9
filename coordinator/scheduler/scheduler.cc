#include "coordinator/scheduler/scheduler.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string_view>
#include <tuple>

#include "coordinator/scheduler/failure_domains.h"

namespace muster {
namespace {

struct Node {
  NodeCapacity capacity;
  std::optional<JobId> reserved_for;  // a job ahead in the queue waits for it
};

// "n2" before "n10", in numeric order.
auto NameOrder(const NodeName& name) {
  return std::tuple(name.value.size(), std::string_view(name.value));
}

bool LacksGpus(const GangRequest& request, const Node& node) {
  return request.needs_gpus && node.capacity.without_gpus;
}

// The other job that has the node's GPUs, or nullptr.
const JobId* GpusTakenBy(const GangRequest& request, const Node& node) {
  if (!request.needs_gpus) return nullptr;
  const std::vector<JobId>& jobs = node.capacity.gpu_jobs;
  const auto other =
      std::find_if(jobs.begin(), jobs.end(), [&](const JobId& job) { return job != request.job; });
  return other == jobs.end() ? nullptr : &*other;
}

bool MayUse(const GangRequest& request, const Node& node) {
  if (LacksGpus(request, node)) return false;
  return std::find(request.exclude.begin(), request.exclude.end(), node.capacity.name) ==
         request.exclude.end();
}

int Held(const GangRequest& request, const Node& node) {
  for (const HeldSlots& held : request.held) {
    if (held.node == node.capacity.name) return held.slots;
  }
  return 0;
}

// Slots that the job could have there.
int Room(const GangRequest& request, const Node& node) {
  return node.capacity.free_slots + Held(request, node);
}

bool Fits(const GangRequest& request, const Node& node) {
  return MayUse(request, node) && !node.reserved_for && GpusTakenBy(request, node) == nullptr &&
         Room(request, node) >= request.ranks_per_node;
}

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
std::vector<Node*> BestForGang(const GangRequest& request, const std::vector<Node*>& fitting,
                               std::size_t wanted, DomainCount& gang) {
  return Best(
      fitting, wanted,
      [&](const Node& node) {
        return std::tuple(Preference(request, node), Room(request, node),
                          gang.AlikeWith(node.capacity.domain, request.nodes));
      },
      [&](const Node& node) { gang.Add(node.capacity.domain); });
}

std::vector<Node*> BestSpares(const GangRequest& request, const std::vector<Node*>& fitting,
                              const DomainCount& gang) {
  return Best(
      fitting, static_cast<std::size_t>(request.spares),
      [&](const Node& node) {
        return std::tuple(Preference(request, node), gang.Of(node.capacity.domain),
                          Room(request, node));
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

// Former nodes keep their node rank if the gang is whole, and their order if it is not.
std::optional<Choice> Choose(const GangRequest& request, std::vector<Node>& nodes) {
  std::vector<Node*> fitting;
  for (Node& node : nodes) {
    if (Fits(request, node)) fitting.push_back(&node);
  }
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
  const std::vector<Node*> fresh = BestForGang(request, fitting, empty, gang);
  std::size_t next = 0;
  for (Node*& place : places) {
    if (place == nullptr && next < fresh.size()) place = fresh[next++];
  }
  std::erase(places, nullptr);
  EraseAll(fitting, fresh);
  return Choice{std::move(places), BestSpares(request, fitting, gang)};
}

void Take(const GangRequest& request, Node& node) {
  node.capacity.free_slots += Held(request, node) - request.ranks_per_node;
  if (request.needs_gpus) node.capacity.gpu_jobs.push_back(request.job);
}

WaitReason ReasonOf(const GangRequest& request, const std::vector<Node>& nodes) {
  WaitReason reason{.nodes = request.least(), .ranks_per_node = request.ranks_per_node};
  reason.ready = static_cast<int>(nodes.size());
  reason.excludes = !request.exclude.empty();
  for (const Node& node : nodes) {
    if (LacksGpus(request, node)) ++reason.without_gpus;
    if (!MayUse(request, node)) continue;
    if (node.capacity.slots >= request.ranks_per_node) ++reason.large_enough;
    if (Room(request, node) < request.ranks_per_node) continue;
    if (node.reserved_for) {
      ++reason.reserved;
      reason.reserved_for = *node.reserved_for;
    } else if (const JobId* job = GpusTakenBy(request, node)) {
      ++reason.gpus_taken;
      reason.gpu_job = *job;
    } else {
      ++reason.with_room;
    }
  }
  return reason;
}

// The job can be placed once others end: jobs behind it may not take what it waits for.
void KeepNodesFor(const GangRequest& request, std::vector<Node>& nodes) {
  std::vector<Node*> usable;
  for (Node& node : nodes) {
    if (MayUse(request, node) && node.capacity.slots >= request.ranks_per_node &&
        !node.reserved_for) {
      usable.push_back(&node);
    }
  }
  if (usable.size() < static_cast<std::size_t>(request.least())) return;
  for (Node* node : usable) node->reserved_for = request.job;
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
  std::vector<Node> nodes;
  for (const NodeCapacity& capacity : snapshot.nodes) nodes.push_back({capacity, std::nullopt});
  std::sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) {
    return NameOrder(a.capacity.name) < NameOrder(b.capacity.name);
  });

  SchedulePlan plan;
  for (const GangRequest* request : queue) {
    const std::optional<Choice> choice = Choose(*request, nodes);
    if (!choice) {
      plan.waiting.push_back({request->job, ReasonOf(*request, nodes)});
      KeepNodesFor(*request, nodes);
      continue;
    }
    GangPlacement placement{request->job, {}, {}};
    for (Node* node : choice->nodes) {
      Take(*request, *node);
      placement.nodes.push_back(node->capacity.name);
    }
    for (Node* node : choice->spares) {
      Take(*request, *node);
      placement.spares.push_back(node->capacity.name);
    }
    if (placement.nodes.empty() && placement.spares.empty()) continue;
    plan.placements.push_back(std::move(placement));
  }
  return plan;
}

}  // namespace muster
