#include "coordinator/control/preparing.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "common/base/text.h"
#include "coordinator/control/attempt_end.h"
#include "coordinator/control/checkpoints.h"
#include "coordinator/control/cuda_stacks.h"
#include "coordinator/control/gang_nodes.h"
#include "coordinator/control/gang_orders.h"
#include "coordinator/control/job_end.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/master_address.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/queue_usage.h"
#include "coordinator/control/tier.h"
#include "coordinator/control/words.h"

namespace muster::control {
namespace {

// Launch to first step of a gang with parked processes, at least; more if a job's ten slowest steps
// take longer.
constexpr Duration kTierBudget = std::chrono::seconds(10);

// A rank keeps its devices where it can: a process that has used one cannot change to another.
std::vector<std::string> KeepPlaces(std::vector<std::string> devices,
                                    const std::vector<std::string>& before) {
  if (before.size() != devices.size()) return devices;
  std::vector<std::string> fresh;
  for (const std::string& device : devices)
    if (std::ranges::find(before, device) == before.end()) fresh.push_back(device);
  auto next = fresh.begin();
  std::vector<std::string> kept = before;
  for (std::string& device : kept)
    if (std::ranges::find(devices, device) == devices.end()) device = *next++;
  return kept;
}

// By node; empty if there are none on any.
std::vector<std::vector<std::string>> DeviceIds(const State& state, const JobEntry& job,
                                                const std::vector<NodeName>& nodes,
                                                const std::vector<DeviceMask>& masks) {
  std::vector<std::vector<std::string>> ids;
  if (std::ranges::all_of(masks, [](DeviceMask mask) { return mask == 0; })) return ids;
  std::map<NodeName, std::vector<std::string>> before;
  if (!job.attempts.empty()) before = DevicesByNode(job.attempts.back());
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    ids.push_back(
        KeepPlaces(control::DeviceIds(state.nodes.at(nodes[n]), masks[n]), before[nodes[n]]));
  }
  return ids;
}

// The record of the job's newest generation with every rank placed, block by block.
AttemptRecord MakeAttempt(const State& state, const JobEntry& job, const GangPlacement& placement) {
  const std::vector<NodeName>& nodes = placement.nodes;
  AttemptRecord attempt;
  attempt.job = job.record.id;
  attempt.generation = job.record.generation;
  attempt.nodes = nodes;
  attempt.spares = placement.spares;
  attempt.lent = placement.lent;
  attempt.node_devices = DeviceIds(state, job, placement.nodes, placement.node_devices);
  attempt.spare_devices = DeviceIds(state, job, placement.spares, placement.spare_devices);
  const int per_node = job.spec.resources.ranks_per_node;
  for (int n = 0; n < static_cast<int>(nodes.size()); ++n) {
    for (int local = 0; local < per_node; ++local) {
      attempt.ranks.push_back({n * per_node + local, local, n, nodes[n]});
    }
  }
  if (job.fault) {
    attempt.seconds.detect = ToSeconds(job.fault->aborted - job.fault->at);
    attempt.seconds.abort = ToSeconds(job.fault->quiesced - job.fault->aborted);
  }
  return attempt;
}

// The gang's nodes that were not in the last gang that trained. Attempts in between may have had
// them, and have ended because of them.
std::vector<NodeName> NewNodes(const JobEntry& job) {
  std::vector<NodeName> fresh;
  const AttemptRecord* trained = NewestTrained(job, 1);
  if (trained == nullptr) return fresh;
  for (const NodeName& name : job.attempts.back().nodes) {
    if (std::find(trained->nodes.begin(), trained->nodes.end(), name) == trained->nodes.end()) {
      fresh.push_back(name);
    }
  }
  return fresh;
}

// "n1 (rank 0), n2 (rank 1)" or "n1 (ranks 0-7), ...".
std::string WhereText(const AttemptRecord& attempt) {
  std::string text;
  const std::size_t per_node = attempt.ranks.size() / attempt.nodes.size();
  for (std::size_t n = 0; n < attempt.nodes.size(); ++n) {
    const std::size_t first = n * per_node;
    text += (n == 0 ? "" : ", ") + attempt.nodes[n].value + " (rank";
    text += per_node == 1
                ? " " + std::to_string(first)
                : "s " + std::to_string(first) + "-" + std::to_string(first + per_node - 1);
    text += ")";
  }
  for (const NodeName& spare : attempt.spares) text += ", spare " + spare.value;
  return text;
}

std::optional<TimePoint> TierDeadline(const JobEntry& job, TimePoint from) {
  if (job.attempts.back().tier != Tier::kInPlace) return std::nullopt;
  // The duration of a step is unknown: a restart of the coordinator discards it.
  if (job.slowest_step <= 0) return std::nullopt;
  return from + std::max(kTierBudget, FromSeconds(10 * job.slowest_step));
}

void LaunchGang(Transaction& tx, JobEntry& job) {
  AttemptRecord& attempt = job.attempt();
  Launching launching{.deadline = tx.now.mono + kLaunchDeadline};
  launching.ranks.tier_deadline = TierDeadline(job, tx.now.mono);
  tx.Enter(job, std::move(launching));
  if (tx.options.new_token) attempt.rendezvous_token = tx.options.new_token();
  if (job.record.started_unix_ms == 0) {
    job.record.started_unix_ms = tx.now.unix_ms;
    job.time_limit_at = TimeLimitAt(job, tx.now);
    PlanEnd(job, tx.now);
  }
  WatchFromStart(tx, job);
  tx.RecordEvent(job, {"launched", Severity::kInfo,
                       std::to_string(WorldSize(job)) + (WorldSize(job) == 1 ? " rank" : " ranks") +
                           " launched, rendezvous at " + attempt.master_address + ":" +
                           std::to_string(attempt.master_port)});
  SendLaunch(tx, job, 0, static_cast<int>(attempt.nodes.size()));
  // The node that was to write a commit record is gone, and its order with it.
  const NodeName& front = attempt.nodes.front();
  const bool moved =
      job.attempts.size() > 1 && job.attempts[job.attempts.size() - 2].nodes.front() != front;
  if (moved) ResendCommitted(tx, job, front);
}

void SparePrepared(Transaction& tx, JobEntry& job, GangNode& member, const Prepared& message) {
  if (job.attempt().state == AttemptState::kAborting) return;
  const NodeName node = member.name;
  if (!message.error.empty()) {
    const std::string error = CutText(message.error, kMaxReasonBytes);
    Refuse(tx, job, node, error);
    return DropSpare(tx, job, node, "it cannot run the job: " + error);
  }
  member.prepared = true;
  tx.state.holds.Prepared(node, job.record.id);
}

// The port that the master's node has bound for this gang while the one before it ended, or 0. With
// a port the launch need not wait for Prepared: the same nodes have run the job, and their
// processes wait.
int BoundAhead(const JobEntry& job, const std::optional<Survivors>& survivors) {
  const AttemptRecord& attempt = job.attempts.back();
  if (attempt.tier != Tier::kInPlace) return 0;
  const AttemptRecord& before = job.attempts[job.attempts.size() - 2];
  const bool same_master = before.nodes.front() == attempt.nodes.front() &&
                           before.master_address == attempt.master_address;
  return same_master && survivors ? survivors->next_master_port : 0;
}

// Chooses the master's address and sends Prepare to every node of the gang.
void PrepareNodes(Transaction& tx, JobEntry& job, const GangPlacement& placement,
                  const std::optional<Survivors>& survivors) {
  std::vector<const NodeRecord*> records;
  for (const NodeName& node : placement.nodes) records.push_back(&tx.node(node).record);
  const Result<std::string> address = ChooseMasterAddress(records);
  if (!address.ok()) {
    // Nothing was sent to any node, so nothing has to be ended.
    for (GangNode& member : job.gang->nodes) member.quiesced = true;
    return Fail(tx, job,
                {.kind = CauseKind::kBadAddress,
                 .retryable = false,
                 .node = placement.nodes.front(),
                 .message = address.status().message(),
                 .at = tx.now.mono});
  }
  job.attempt().master_address = *address;
  In<Preparing>(*job.gang)->deadline = tx.now.mono + kPrepareDeadline;
  for (int n = 0; n < static_cast<int>(job.gang->nodes.size()); ++n) SendPrepare(tx, job, n);
  if (const int port = BoundAhead(job, survivors); port > 0) {
    job.attempt().master_port = port;
    LaunchGang(tx, job);
  }
  const int spares = static_cast<int>(placement.spares.size());
  if (spares < job.spec.resources.spares) {
    tx.RecordEvent(job,
                   {"spares_missing", Severity::kWarning,
                    std::to_string(spares) + " of " + std::to_string(job.spec.resources.spares) +
                        " spare nodes found; more are taken when nodes have room"});
  }
}

}  // namespace

void StartAttempt(Transaction& tx, JobEntry& job, const GangPlacement& placement) {
  const std::vector<NodeName>& nodes = placement.nodes;
  const bool first = job.attempts.empty();
  const Generation generation = std::max(job.record.generation + 1, job.record.next_generation);
  job.record.generation = generation;
  if (first) {
    tx.out.observations.push_back(QueueWaitObserved{SecondsSinceSubmission(job, tx.now)});
  }
  Gang gang;
  gang.began = tx.now.mono;
  gang.committed_before = job.record.committed_step;
  AttemptRecord attempt = MakeAttempt(tx.state, job, placement);
  attempt.started_unix_ms = tx.now.unix_ms;
  NoteGangBegins(tx);
  if (job.record.suspended_unix_ms > 0) EndSetAside(job, tx.now);
  PlanEnd(job, tx.now);
  attempt.tier = ChooseTier({first, job.waited, job.survivors.has_value(),
                             job.attempts.empty() ? nodes : job.attempts.back().nodes, nodes});
  job.record.world_size = static_cast<int>(attempt.ranks.size());
  for (const NodeName& node : nodes) gang.nodes.Add({.name = node});
  for (const NodeName& node : placement.spares) {
    gang.nodes.Add({.name = node, .spare = true});
  }
  // Preparing takes over what is parked on the gang's nodes; processes parked elsewhere are not
  // needed.
  for (std::size_t n = 0; n < gang.nodes.size(); ++n) {
    const NodeName& name = gang.nodes[static_cast<int>(n)].name;
    NoteUnreleased(job, name);
    tx.state.holds.Take(name, job.record.id, generation,
                        HeldBy(job, job.spec.resources.ranks_per_node, DevicesAt(attempt, n),
                               UseOf(job, attempt, name)));
  }
  for (const NodeName& name : nodes) DropCrowdedSpares(tx, name, NameOf(job) + " has taken it");
  EndParked(tx, job);
  if (!first) {
    ++job.record.restarts;
    tx.out.observations.push_back(RestartObserved{job.attempt().cause_kind, attempt.tier});
  }
  job.attempts.push_back(std::move(attempt));
  CondenseOld(job.attempts);
  job.gang = std::make_unique<Gang>(std::move(gang));
  tx.state.with_gang.emplace(job.record.id, &job);
  const std::optional<Survivors> survivors = std::exchange(job.survivors, std::nullopt);
  job.waited = false;
  job.progress.clear();
  job.checkpoint_clock.Begin();
  job.wait_recorded = false;
  job.wait.reset();
  job.record.reason.clear();
  if (job.record.state == JobState::kQueued) job.record.progress_unix_ms = tx.now.unix_ms;
  tx.Move(job, JobEvent::kPlaced);
  tx.Enter(job, Preparing{});
  tx.RecordEvent(job,
                 {"placed", Severity::kInfo,
                  "generation " + std::to_string(generation) + " on " + WhereText(job.attempt()) +
                      (first ? "" : "; by " + std::string(Name(job.attempt().tier)))});
  for (const NodeName& name : placement.lent)
    tx.RecordEvent(job, {"lent", Severity::kInfo,
                         "node " + name.value +
                             " is a spare of other jobs: it gives way as soon as one of them needs "
                             "the node, whatever its age"});
  PrepareNodes(tx, job, placement, survivors);
}

void AddSpares(Transaction& tx, JobEntry& job, const GangPlacement& placement) {
  AttemptRecord& attempt = job.attempt();
  std::vector<std::vector<std::string>> devices =
      DeviceIds(tx.state, job, placement.spares, placement.spare_devices);
  for (std::size_t i = 0; i < placement.spares.size(); ++i) {
    const NodeName& name = placement.spares[i];
    job.gang->nodes.Add({.name = name, .spare = true});
    attempt.spares.push_back(name);
    if (!devices.empty()) {
      attempt.spare_devices.resize(attempt.spares.size() -
                                   1);  // those of an earlier build have none
      attempt.spare_devices.push_back(std::move(devices[i]));
    }
    NoteUnreleased(job, name);
    tx.state.holds.Take(name, job.record.id, attempt.generation,
                        HeldAt(job, job.gang->nodes.size() - 1));
    SendPrepare(tx, job, static_cast<int>(job.gang->nodes.size()) - 1);
    tx.RecordEvent(job,
                   {"spare_added", Severity::kInfo, "node " + name.value + " is held as a spare"});
  }
  tx.MarkAttempt(job);
}

void Handle(Transaction& tx, const NodeName& node, const Prepared& message) {
  GangNode* member = nullptr;
  JobEntry* job = tx.Fence(node, message.job, message.generation, &member);
  if (job == nullptr || member->prepared) return;
  if (member->spare) return SparePrepared(tx, *job, *member, message);
  const bool launched = job->attempt().state == AttemptState::kLaunching;  // a port was bound ahead
  if (job->attempt().state != AttemptState::kPreparing && !launched) return;
  const bool hosts_master = job->attempt().nodes.front() == node;
  Failure failure{.kind = CauseKind::kPrepareFailed, .node = node, .at = tx.now.mono};
  if (!message.error.empty()) {
    const std::string error = CutText(message.error, kMaxReasonBytes);
    // If the job has run before, the fault lies with the node; so does what may pass, such as a
    // disk that is full.
    const bool ran = job->record.started_unix_ms > 0;
    if (ran || message.retryable) Refuse(tx, *job, node, error, !message.retryable);
    failure.retryable = message.retryable || ran;
    failure.message = "node " + node.value + " cannot run it: " + error;
    return Fail(tx, *job, std::move(failure));
  }
  if (hosts_master && message.master_port <= 0) {
    failure.message = "node " + node.value + " bound no port for the rendezvous";
    return Fail(tx, *job, std::move(failure));
  }
  if (launched && hosts_master && message.master_port != job->attempt().master_port) {
    failure.message = "node " + node.value + " no longer has the port that it had bound";
    return Fail(tx, *job, std::move(failure));
  }
  member->prepared = true;
  member->cuda = message.cuda;
  tx.state.holds.Prepared(node, job->record.id);
  if (launched) return;
  if (hosts_master) job->attempt().master_port = message.master_port;
  const GangNodes& members = job->gang->nodes;
  const auto is_ready = [](const GangNode& m) { return m.prepared || m.spare; };
  if (!std::all_of(members.begin(), members.end(), is_ready)) return;
  std::vector<NodeStack> stacks;
  for (const GangNode& m : members) {
    if (m.cuda) stacks.push_back({m.name, *m.cuda});
  }
  if (const Status status = CheckCudaStacks(stacks); !status.ok()) {
    // Nodes that have formed a gang before are compatible.
    for (const NodeName& name : NewNodes(*job)) {
      Refuse(tx, *job, name, status.message());
      failure.node = name;
    }
    failure.retryable = job->record.started_unix_ms > 0;
    failure.message = status.message();
    return Fail(tx, *job, std::move(failure));
  }
  LaunchGang(tx, *job);
}

void WatchFromStart(Transaction& tx, JobEntry& job) {
  std::vector<NodeName> nodes;
  for (const RankRecord& rank : job.attempt().ranks) nodes.push_back(rank.node);
  if (!job.detectors) job.detectors = std::make_unique<Detectors>();
  job.detectors->hangs.Begin(nodes, tx.now.mono);
  job.detectors->stragglers.Begin(std::move(nodes));
  // The attempt was taken over from the store.
  for (const RankRecord& rank : job.attempt().ranks) {
    if (rank.state == RankState::kExited) job.detectors->hangs.RankEnded(rank.rank);
  }
}

}  // namespace muster::control
