#include "coordinator/pilots/pool_facts.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/job_spec/queue_names.h"
#include "coordinator/queues/queue_tree.h"

namespace muster {
namespace {

PoolNodeState StateOf(NodeState state) {
  switch (state) {
    case NodeState::kJoining:
    case NodeState::kReady:
    case NodeState::kSuspect: return PoolNodeState::kUsable;
    case NodeState::kDraining:
    case NodeState::kDrained: return PoolNodeState::kLeaving;
    case NodeState::kLost:
    case NodeState::kQuarantined: return PoolNodeState::kBad;
  }
  return PoolNodeState::kBad;
}

bool IsToBeAvoided(const NodeView& node) {
  const NodeRecord& record = *node.record;
  if (record.state == NodeState::kQuarantined) return true;
  if (record.pilot.empty()) return node.connected;
  return StateOf(record.state) == PoolNodeState::kLeaving &&
         record.drain_cause != DrainCause::kPilot;
}

bool HasGang(const JobView& job) {
  return !job.attempts->empty() && job.attempts->back().state != AttemptState::kEnded;
}

// Nodes that already wait for the job, with its parked processes.
int HeldBy(const JobView& job, const std::vector<PoolNodeFact>& nodes) {
  if (job.attempts->empty()) return 0;
  const AttemptRecord& last = job.attempts->back();
  return static_cast<int>(std::count_if(nodes.begin(), nodes.end(), [&](const PoolNodeFact& node) {
    const NodeName name{node.name};
    const bool former =
        std::find(last.nodes.begin(), last.nodes.end(), name) != last.nodes.end() ||
        std::find(last.spares.begin(), last.spares.end(), name) != last.spares.end();
    return former && node.busy && node.state == PoolNodeState::kUsable;
  }));
}

// Spares that jobs share: as many as the one that wants most of them.
class SharedSpares {
 public:
  // They are the spares of a gang.
  void Add(const std::vector<NodeName>& spares) { there_.insert(spares.begin(), spares.end()); }
  // How many are to come for a job beside those that came, or come for others.
  int Lacking(int wanted) {
    const int coming = static_cast<int>(there_.size()) + asked_;
    const int lacking = std::max(0, wanted - coming);
    asked_ += lacking;
    return lacking;
  }

 private:
  std::set<NodeName> there_;
  int asked_ = 0;
};

bool GivesWay(const JobView& job) {
  return HasGang(job) && !job.record->reclaim.claimant.empty() &&
         job.record->reclaim.generation == job.attempts->back().generation;
}

// It has shrunk, or will: until its claimant has started it takes no node back.
bool IsKeptSmall(const JobView& job) { return !job.record->reclaim.gives_up.empty(); }

bool LacksNothing(const JobView& job) {
  const JobState state = job.record->state;
  return state == JobState::kSuspended || state == JobState::kStopping || job.kept_back ||
         IsKeptSmall(job);
}

// What a job would have of nodes beside its gang.
struct Wish {
  int nodes = 0;  // with those that wait for it already
  int least = 0;  // with fewer it cannot start
  bool partly = false;
};

Wish WishOf(const JobView& job, SharedSpares& shared) {
  const ResourceSpec& resources = job.spec->resources;
  if (HasGang(job)) {
    const AttemptRecord& attempt = job.attempts->back();
    const int spares = std::max(0, resources.spares - static_cast<int>(attempt.spares.size()));
    return {.nodes = std::max(0, resources.nodes - static_cast<int>(attempt.nodes.size())) +
                     (resources.share_spares ? shared.Lacking(resources.spares) : spares),
            .partly = true};
  }
  // A job that ran continues with fewer.
  const int least = job.attempts->empty() ? resources.nodes : job.spec->min_nodes();
  const int spares = resources.share_spares ? shared.Lacking(resources.spares) : resources.spares;
  return {.nodes = resources.nodes + spares, .least = least, .partly = least < resources.nodes};
}

// What the ceilings of queues, and of users, leave to jobs that wait, as far as those before them
// leave it.
class QueueRoom {
 public:
  explicit QueueRoom(const QueuesView& queues) : shares_(*queues.shares) {
    for (const std::vector<QueueView>* views : {&queues.queues, &queues.users}) {
      for (const QueueView& queue : *views) {
        used_.push_back(queue.used);
        used_.back().jobs = queue.running;
      }
    }
  }

  // So many of the nodes may be used, and count from now on; 0: fewer than the least.
  int Take(const JobView& job, const Wish& wish) {
    const int queue = shares_.Find(QueueName(job.record->queue), job.record->owner);
    const NodeDemand demand = job.spec->resources.per_node();
    const auto room = [](int used, int each, int ceiling) {
      return each == 0 || ceiling == kNoCeiling ? std::numeric_limits<int>::max()
                                                : std::max(0, ceiling - used) / each;
    };
    int nodes = wish.nodes;
    const bool counts = HasGang(job) || job.record->state == JobState::kRecovering;
    for (int at = queue; at >= 0; at = Spec(at).parent) {
      const Amounts& ceiling = Spec(at).ceiling;
      if (!counts && ceiling.jobs > 0 && Used(at).jobs >= ceiling.jobs) return 0;
      nodes = std::min({nodes, room(Used(at).gpus, demand.device_count(), ceiling.gpus),
                        room(Used(at).slots, demand.ranks, ceiling.slots)});
    }
    if (nodes < wish.least) return 0;
    for (int at = queue; at >= 0; at = Spec(at).parent)
      Used(at) += {.gpus = nodes * demand.device_count(),
                   .slots = nodes * demand.ranks,
                   .jobs = HasGang(job) ? 0 : 1};
    return nodes;
  }

 private:
  const QueueSpec& Spec(int at) const {
    return shares_.tree().queues[static_cast<std::size_t>(at)];
  }
  Amounts& Used(int at) { return used_[static_cast<std::size_t>(at)]; }

  const ShareTree& shares_;
  std::vector<Amounts> used_;
};

// As far as the order of the scheduler does not depend on shares.
std::vector<JobView> InOrder(const Controller& controller, const QueueTree& queues) {
  std::vector<JobView> jobs = controller.Jobs();
  std::erase_if(jobs, [](const JobView& job) { return IsTerminal(job.record->state); });
  std::ranges::stable_sort(jobs, std::greater<>(), [&](const JobView& job) {
    const PriorityClass* priority_class = queues.FindClass(ClassName(job.record->priority_class));
    return std::tuple(job.record->state == JobState::kRecovering,
                      priority_class == nullptr ? 0 : priority_class->value, job.record->priority);
  });
  return jobs;
}

}  // namespace

PoolFacts ReadPoolFacts(const Controller& controller) {
  PoolFacts facts;
  for (const NodeView& node : controller.Nodes()) {
    const NodeRecord& record = *node.record;
    facts.nodes.push_back(
        {record.name.value, StateOf(record.state), node.slots_used > 0, record.pilot});
    if (IsToBeAvoided(node)) facts.avoid.push_back(record.name.value);
  }
  const QueuesView queues = controller.Queues();
  const std::vector<JobView> jobs = InOrder(controller, *queues.tree);
  std::set<JobId> claimants;
  for (const JobView& job : jobs)
    if (GivesWay(job)) claimants.insert(job.record->reclaim.claimant);
  QueueRoom room(queues);
  SharedSpares shared;
  for (const JobView& job : jobs)
    if (HasGang(job) && job.spec->resources.share_spares) shared.Add(job.attempts->back().spares);
  for (const JobView& job : jobs) {
    facts.checkpoint_seconds = std::max(facts.checkpoint_seconds, job.record->checkpoint_seconds);
    if (LacksNothing(job)) continue;
    const Wish wish = WishOf(job, shared);
    const int lacks = room.Take(job, wish) - (HasGang(job) ? 0 : HeldBy(job, facts.nodes));
    // A claimant gets what its victims leave.
    if (lacks <= 0 || claimants.contains(job.record->id)) continue;
    facts.needs.push_back({.why = WhatLacks(job.record->id) + std::to_string(lacks) +
                                  (lacks == 1 ? " node" : " nodes"),
                           .nodes = lacks,
                           .partly = wish.partly,
                           .exclude = job.spec->resources.exclude});
  }
  return facts;
}

}  // namespace muster
