#include "coordinator/control/placement.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/control/attempt_end.h"
#include "coordinator/control/gang_nodes.h"
#include "coordinator/control/gang_orders.h"
#include "coordinator/control/job_end.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/preparing.h"
#include "coordinator/control/stopping.h"
#include "coordinator/control/words.h"
#include "coordinator/scheduler/scheduler.h"

namespace muster::control {
namespace {

constexpr Duration kReadyBeforeGrowth = std::chrono::seconds(3);
constexpr Duration kBetweenRegroupings = std::chrono::seconds(60);

// A running job that lacks nodes or spares: what it requests from the scheduler.
bool WantsMoreNodes(const JobEntry& job) {
  if (!job.gang || job.record.state != JobState::kRunning) return false;
  const Running* running = In<Running>(*job.gang);
  if (running == nullptr || running->stop) return false;
  const AttemptRecord& attempt = job.attempts.back();
  const int missing = job.spec.resources.nodes - static_cast<int>(attempt.nodes.size());
  return missing > 0 || static_cast<int>(attempt.spares.size()) < job.spec.resources.spares;
}

// The nodes are not reserved yet: a gang takes them when it is formed again.
void GiveMoreNodes(Transaction& tx, JobEntry& job, const GangPlacement& placement) {
  const std::vector<NodeName>& nodes = placement.spares;
  if (static_cast<int>(job.attempt().nodes.size()) >= job.spec.resources.nodes) {
    return AddSpares(tx, job, placement);
  }
  TimePoint due = job.regrouped ? *job.regrouped + kBetweenRegroupings : TimePoint::min();
  for (const NodeName& name : nodes) {
    due = std::max(due, tx.node(name).ready_at + kReadyBeforeGrowth);
  }
  if (due > tx.now.mono) {
    job.grow_at = due;
    return;
  }
  job.regrouped = tx.now.mono;
  const std::string reason = "going on with " +
                             std::to_string(job.attempt().nodes.size() + nodes.size()) +
                             " nodes, which have room again";
  // Without snapshots all steps since the last checkpoint would be lost.
  if (job.spec.train && job.spec.train->snapshot.every == 0) {
    return StopGang(tx, job, reason, std::nullopt);
  }
  EndOnPurpose(tx, job, CauseKind::kRegrouped, reason);
}

bool FormerNodeSuspect(const Transaction& tx, const JobEntry& job) {
  if (job.attempts.empty()) return false;
  const std::vector<NodeName>& nodes = job.attempts.back().nodes;
  return std::any_of(nodes.begin(), nodes.end(), [&](const NodeName& name) {
    const auto node = tx.state.nodes.find(name);
    return node != tx.state.nodes.end() && node->second.record.state == NodeState::kSuspect &&
           !job.excluded.contains(name);
  });
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

GangRequest RequestOf(const Transaction& tx, const JobEntry& job) {
  const ResourceSpec& resources = job.spec.resources;
  GangRequest request;
  request.job = job.record.id;
  request.demand = resources.per_node();
  request.priority = job.record.priority;
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

// Nodes that come and go change the reasons of all jobs that wait at once. Once in the timeline and
// in the store is enough: a coordinator that starts works them out again.
void SetWaitReason(Transaction& tx, JobEntry& job, const WaitReason& reason) {
  if (job.wait == reason) return;
  job.wait = reason;
  tx.Changed(job);
  if (std::exchange(job.wait_recorded, true)) return;
  job.record.reason = WaitingText(reason, job.backoff);
  tx.Mark(job);
  tx.RecordEvent(job, {"queued", Severity::kInfo, "waiting: " + job.record.reason});
}

}  // namespace

void Schedule(Transaction& tx) {
  tx.state.reschedule = false;
  SchedulerSnapshot snapshot;
  for (const JobId& id : tx.state.live) {
    const JobEntry& job = std::as_const(tx).job(id);
    if (MayBePlaced(job) || WantsMoreNodes(job)) snapshot.requests.push_back(RequestOf(tx, job));
  }
  if (snapshot.requests.empty()) return;
  for (const auto& [name, node] : tx.state.nodes) {
    if (node.record.state != NodeState::kReady || node.session == 0) continue;
    snapshot.nodes.push_back(CapacityOf(tx.state, node));
  }
  const SchedulePlan plan = Plan(snapshot);
  for (const GangPlacement& placement : plan.placements) {
    JobEntry& job = tx.job(placement.job);
    job.gang ? GiveMoreNodes(tx, job, placement) : StartAttempt(tx, job, placement);
  }
  for (const WaitingJob& waiting : plan.waiting) {
    JobEntry& job = tx.job(waiting.job);
    // Waits for one of its nodes that may still return after a restart of the coordinator.
    if (!FormerNodeSuspect(tx, job)) {
      const bool waits_again = !job.attempts.empty();
      if (waits_again != std::exchange(job.waited, waits_again)) tx.Changed(job);
      EndParked(tx, job);
    }
    SetWaitReason(tx, job, waiting.reason);
  }
}

}  // namespace muster::control
