#include "coordinator/pilots/pool_facts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/job_spec/parse.h"

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

std::optional<PoolNeed> NeedOf(const JobView& job, const ResourceSpec& resources,
                               const std::vector<PoolNodeFact>& nodes) {
  const JobState state = job.record->state;
  if (IsTerminal(state) || state == JobState::kSuspended || state == JobState::kStopping ||
      job.kept_back)
    return std::nullopt;
  PoolNeed need;
  need.exclude = resources.exclude;
  if (HasGang(job)) {
    const AttemptRecord& attempt = job.attempts->back();
    need.nodes = std::max(0, resources.nodes - static_cast<int>(attempt.nodes.size())) +
                 std::max(0, resources.spares - static_cast<int>(attempt.spares.size()));
    need.partly = true;
  } else {
    need.nodes = resources.nodes + resources.spares - HeldBy(job, nodes);
    // A job that ran continues with fewer.
    need.partly = !job.attempts->empty() && resources.min_nodes < resources.nodes;
  }
  if (need.nodes <= 0) return std::nullopt;
  need.why = WhatLacks(job.record->id) + std::to_string(need.nodes) +
             (need.nodes == 1 ? " node" : " nodes");
  return need;
}

}  // namespace

const ResourceSpec& PoolFactsReader::ResourcesOf(const JobRecord& job) {
  const auto known = resources_.find(job.id);
  if (known != resources_.end()) return known->second;
  const Result<JobSpec> spec = ParseJobSpec(job.spec_yaml);
  return resources_.emplace(job.id, spec.ok() ? spec->resources : ResourceSpec()).first->second;
}

PoolFacts PoolFactsReader::Read(const Controller& controller) {
  PoolFacts facts;
  for (const NodeView& node : controller.Nodes()) {
    const NodeRecord& record = *node.record;
    facts.nodes.push_back(
        {record.name.value, StateOf(record.state), node.slots_used > 0, record.pilot});
    if (IsToBeAvoided(node)) facts.avoid.push_back(record.name.value);
  }
  std::vector<JobView> jobs = controller.Jobs();
  std::stable_sort(jobs.begin(), jobs.end(), [](const JobView& a, const JobView& b) {
    return a.record->priority > b.record->priority;
  });
  for (const JobView& job : jobs) {
    if (IsTerminal(job.record->state)) {
      resources_.erase(job.record->id);
      continue;
    }
    facts.checkpoint_seconds = std::max(facts.checkpoint_seconds, job.record->checkpoint_seconds);
    if (auto need = NeedOf(job, ResourcesOf(*job.record), facts.nodes))
      facts.needs.push_back(*std::move(need));
  }
  return facts;
}

}  // namespace muster
