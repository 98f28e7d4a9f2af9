#include "coordinator/control/scheduler_snapshot.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/control/gang_nodes.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/queue_usage.h"

namespace muster::control {
namespace {

constexpr Duration kSuspectUntil = std::chrono::minutes(1);

// A running job that lacks nodes or spares: what it requests from the scheduler.
bool WantsMoreNodes(const JobEntry& job) {
  if (!job.gang || job.record.state != JobState::kRunning) return false;
  const Running* running = In<Running>(*job.gang);
  if (running == nullptr || running->stop) return false;
  const AttemptRecord& attempt = job.attempts.back();
  const int missing = job.spec.resources.nodes - static_cast<int>(attempt.nodes.size());
  return missing > 0 || static_cast<int>(attempt.spares.size()) < job.spec.resources.spares;
}

// What survived SIGKILL may use a device of the job's hold, which no process of it can have then.
NodeParts PartsOf(const Transaction& tx, const NodeName& name, const HeldResources& held) {
  NodeParts parts{.slots = held.slots, .cpus = held.cpus, .memory_bytes = held.memory_bytes};
  const NodeEntry* node = tx.FindNode(name);
  if (node == nullptr || held.devices.empty()) return parts;
  parts.devices = MaskOf(*node, held.devices) & WholeOf(tx.state, *node).all.devices;
  for (const LeakedSlot& leaked : node->record.leaked)
    parts.devices &= ~MaskOf(*node, leaked.devices);
  return parts;
}

std::optional<Promise> PromiseOf(const Transaction& tx, const JobEntry& job) {
  if (!job.promised_at) return std::nullopt;
  const PromiseRecord& record = job.record.promise;
  Promise promise{.start = *job.promised_at, .nodes = record.nodes, .devices = {}};
  for (std::size_t i = 0; i < record.nodes.size(); ++i) {
    const NodeEntry* node = tx.FindNode(record.nodes[i]);
    const bool known = node != nullptr && i < record.devices.size();
    promise.devices.push_back(known ? MaskOf(*node, record.devices[i]) : 0);
  }
  return promise;
}

GangRequest RequestOf(const Transaction& tx, const JobEntry& job) {
  const ResourceSpec& resources = job.spec.resources;
  GangRequest request;
  request.job = job.record.id;
  request.demand = resources.per_node();
  request.priority = job.record.priority;
  request.length = LengthOf(job, tx.now);
  request.submit_order = job.record.submit_order;
  request.exclude = job.backoff.Paused();
  for (const std::string& name : resources.exclude) request.exclude.push_back({name});
  if (!job.gang) {
    request.nodes = resources.nodes;
    request.spares = resources.spares;
    // A job starts whole. One that had a gang takes fewer nodes, unless its own node may return.
    const bool whole = job.attempts.empty() || FormerNodeSuspect(tx, job);
    request.min_nodes = whole ? resources.nodes : job.spec.min_nodes();
    request.recovering = !job.attempts.empty() && !job.waited;
    for (const auto& [name, hold] : tx.state.holds.Parked(job.record.id)) {
      request.held.push_back({name, PartsOf(tx, name, hold.resources)});
    }
    request.promise = PromiseOf(tx, job);
    request.turn = job.turn.value_or(kNever);
    request.collecting = job.collecting;
    if (job.attempts.empty()) return request;
    request.former_nodes = job.attempts.back().nodes;
    request.preferred = job.attempts.back().spares;
    return request;
  }
  const AttemptRecord& attempt = job.attempts.back();
  const int missing = resources.nodes - static_cast<int>(attempt.nodes.size());
  request.nodes = 0;
  request.spares =
      missing > 0 ? missing : resources.spares - static_cast<int>(attempt.spares.size());
  for (const GangNode& member : job.gang->nodes) request.exclude.push_back(member.name);
  request.domains = DomainsOf(attempt, tx.state.nodes);
  const TopologyDemand& topology = request.demand.topology;
  if (const NodeEntry* first = tx.FindNode(attempt.nodes.front());
      topology.within != TopologyLevel::kNone && first)
    request.place = PlaceOf(first->record.inventory, topology.within);
  return request;
}

RunningGang GangOf(const Transaction& tx, const JobEntry& job) {
  RunningGang gang{.amounts = AmountsOf(job)};
  gang.ends = job.ends_at.value_or(kNever);
  if (gang.ends == kNever) return gang;
  for (const NodeName& name : tx.state.holds.Nodes(job.record.id)) {
    const HoldLedger::Hold* hold = tx.state.holds.Find(name, job.record.id);
    gang.parts.push_back({name, PartsOf(tx, name, hold->resources)});
  }
  return gang;
}

}  // namespace

bool FormerNodeSuspect(const Transaction& tx, const JobEntry& job) {
  if (job.attempts.empty()) return false;
  const std::vector<NodeName>& nodes = job.attempts.back().nodes;
  return std::any_of(nodes.begin(), nodes.end(), [&](const NodeName& name) {
    const auto node = tx.state.nodes.find(name);
    return node != tx.state.nodes.end() && node->second.record.state == NodeState::kSuspect &&
           !job.excluded.contains(name);
  });
}

SchedulerSnapshot SnapshotOf(const Transaction& tx) {
  const State& state = tx.state;
  SchedulerSnapshot snapshot{.now = tx.now.mono, .queues = &state.queues};
  std::map<std::string_view, int> queues;
  for (const QueueSpec& queue : state.queues.queues)
    queues.emplace(queue.name, static_cast<int>(queues.size()));
  const auto queue_of = [&](const JobEntry& job) {
    const auto queue = queues.find(QueueOf(job));
    return queue == queues.end() ? 0 : queue->second;
  };
  snapshot.requests.reserve(state.live.size());
  for (const JobId& id : state.live) {
    const JobEntry& job = tx.job(id);
    if (job.gang) {
      snapshot.running.push_back(GangOf(tx, job));
      snapshot.running.back().queue = queue_of(job);
    }
    if (!MayBePlaced(job) && !WantsMoreNodes(job)) continue;
    snapshot.requests.push_back(RequestOf(tx, job));
    GangRequest& request = snapshot.requests.back();
    request.queue = queue_of(job);
    if (const PriorityClass* known = state.queues.FindClass(ClassOf(job)))
      request.class_value = known->value;
  }
  if (snapshot.requests.empty()) return snapshot;
  if (state.queues.queues.size() > 1) snapshot.usage = UsageOfQueues(state);
  for (const auto& [name, node] : state.nodes) {
    const bool suspect = node.record.state == NodeState::kSuspect;
    if (!suspect && (node.record.state != NodeState::kReady || node.session == 0)) continue;
    snapshot.nodes.push_back(CapacityOf(state, node));
    // Until then it is back, or lost.
    if (suspect) snapshot.nodes.back().usable_from = tx.now.mono + kSuspectUntil;
  }
  return snapshot;
}

}  // namespace muster::control
