#include "coordinator/control/scheduler_snapshot.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/control/gang_nodes.h"
#include "coordinator/control/gang_orders.h"
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

// Adds jobs to a snapshot.
class Collector {
 public:
  explicit Collector(const Transaction& tx)
      : tx_(tx), snapshot_{.now = tx.now.mono, .queues = &tx.state.queues} {
    const std::vector<QueueSpec>& queues = tx.state.queues.queues;
    for (std::size_t i = 0; i < queues.size(); ++i)
      places_.emplace(queues[i].name, static_cast<int>(i));
  }

  void AddGangs() {
    for (const JobId& id : tx_.state.with_gang) {
      const JobEntry& job = tx_.job(id);
      snapshot_.running.push_back(GangOf(tx_, job));
      snapshot_.running.back().queue = QueueIndexOf(job);
      if (WantsMoreNodes(job)) AddRequest(job);
    }
  }
  void AddWaiting(const std::set<JobId>& jobs) {
    snapshot_.requests.reserve(snapshot_.requests.size() + jobs.size());
    for (const JobId& id : jobs)
      if (const JobEntry& job = tx_.job(id); MayBePlaced(job)) AddRequest(job);
  }
  SchedulerSnapshot Take() {
    if (!snapshot_.requests.empty()) AddCluster();
    return std::move(snapshot_);
  }

 private:
  int QueueIndexOf(const JobEntry& job) const {
    const auto place = places_.find(QueueOf(job));
    return place == places_.end() ? 0 : place->second;
  }
  void AddRequest(const JobEntry& job) {
    snapshot_.requests.push_back(RequestOf(tx_, job));
    GangRequest& request = snapshot_.requests.back();
    request.queue = QueueIndexOf(job);
    if (const PriorityClass* known = tx_.state.queues.FindClass(ClassOf(job)))
      request.class_value = known->value;
  }
  void AddCluster() {
    const State& state = tx_.state;
    if (state.queues.queues.size() > 1) snapshot_.usage = UsageOfQueues(state);
    for (const auto& [name, node] : state.nodes) {
      const bool suspect = node.record.state == NodeState::kSuspect;
      if (!suspect && (node.record.state != NodeState::kReady || node.session == 0)) continue;
      snapshot_.nodes.push_back(CapacityOf(state, node));
      // Until then it is back, or lost.
      if (suspect) snapshot_.nodes.back().usable_from = tx_.now.mono + kSuspectUntil;
    }
  }

  const Transaction& tx_;
  SchedulerSnapshot snapshot_;
  std::map<std::string_view, int> places_;  // of queues in the tree
};

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
  Collector collector(tx);
  collector.AddGangs();
  collector.AddWaiting(tx.state.live);
  return collector.Take();
}

SchedulerSnapshot SnapshotOfArrived(const Transaction& tx) {
  Collector collector(tx);
  collector.AddGangs();
  std::set<JobId> jobs = tx.state.planned;
  jobs.insert(tx.state.arrived.begin(), tx.state.arrived.end());
  collector.AddWaiting(jobs);
  return collector.Take();
}

}  // namespace muster::control
