// From waiting to launched: reserve, prepare every node, launch all ranks.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/text.h"
#include "coordinator/control/core.h"
#include "coordinator/control/cuda_stacks.h"
#include "coordinator/control/master_address.h"
#include "coordinator/control/tier.h"
#include "coordinator/scheduler/failure_domains.h"
#include "coordinator/scheduler/scheduler.h"

namespace muster {
namespace {

// The record of the job's newest generation with every rank placed, block by block.
AttemptRecord MakeAttempt(const JobEntry& job, const GangPlacement& placement) {
  const std::vector<NodeName>& nodes = placement.nodes;
  AttemptRecord attempt;
  attempt.job = job.record.id;
  attempt.generation = job.record.generation;
  attempt.nodes = nodes;
  attempt.spares = placement.spares;
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

// Failure domains, by node rank.
std::vector<std::string> DomainsOf(const AttemptRecord& attempt,
                                   const std::map<NodeName, NodeEntry>& nodes) {
  std::vector<std::string> domains;
  for (const NodeName& name : attempt.nodes) {
    const auto node = nodes.find(name);
    domains.push_back(node == nodes.end() ? "" : node->second.record.domain());
  }
  return domains;
}

// Of the gang's nodes those that the last gang which has trained had not. Attempts in between may
// have had them, and have ended because of them.
std::vector<NodeName> NewNodes(const JobEntry& job) {
  std::vector<NodeName> fresh;
  const auto trained =
      std::find_if(job.attempts.rbegin() + 1, job.attempts.rend(),
                   [](const AttemptRecord& attempt) { return attempt.resumed_step >= 0; });
  if (trained == job.attempts.rend()) return fresh;
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

}  // namespace

void ControllerCore::Schedule() {
  reschedule_ = false;
  SchedulerSnapshot snapshot;
  for (const JobId& id : live_) {
    const JobEntry& job = jobs_.at(id);
    const bool waits = job.pending() && !job.not_before;
    if (waits || WantsMoreNodes(job)) snapshot.requests.push_back(RequestOf(job));
  }
  if (snapshot.requests.empty()) return;
  const bool for_gpus = std::any_of(snapshot.requests.begin(), snapshot.requests.end(),
                                    [](const GangRequest& request) { return request.needs_gpus; });
  for (const auto& [name, node] : nodes_) {
    if (node.record.state != NodeState::kReady || node.session == 0) continue;
    snapshot.nodes.push_back({name, node.record.slots, node.record.slots - UsedSlots(node),
                              node.record.domain(), node.gpus == 0});
    if (for_gpus) snapshot.nodes.back().gpu_jobs = GpuJobsOn(node);
  }
  const SchedulePlan plan = Plan(snapshot);
  for (const GangPlacement& placement : plan.placements) {
    JobEntry& job = jobs_.at(placement.job);
    job.gang ? GiveMoreNodes(job, placement.spares) : StartAttempt(job, placement);
  }
  for (const WaitingJob& waiting : plan.waiting) {
    JobEntry& job = jobs_.at(waiting.job);
    // A node of its that may still come back, after a restart of ours, is waited for.
    if (!FormerNodeSuspect(job)) {
      const bool waits_again = !job.attempts.empty();
      if (waits_again != std::exchange(job.waited, waits_again)) Changed(job);
      EndParked(job);
    }
    const std::string refusals = job.refusals.Text();
    SetWaitReason(job, waiting.reason + (refusals.empty() ? "" : "; " + refusals));
  }
}

GangRequest ControllerCore::RequestOf(const JobEntry& job) const {
  const ResourceSpec& resources = job.spec.resources;
  GangRequest request;
  request.job = job.record.id;
  request.ranks_per_node = resources.ranks_per_node;
  request.priority = job.record.priority;
  request.submit_order = job.record.submit_order;
  request.needs_gpus = UsesGpus(job);
  request.exclude = job.refusals.Paused();
  for (const std::string& name : resources.exclude) request.exclude.push_back({name});
  if (!job.gang) {
    request.nodes = resources.nodes;
    request.spares = resources.spares;
    // A job starts whole. One that had a gang takes fewer, unless its own node may come back.
    const bool whole = job.attempts.empty() || FormerNodeSuspect(job);
    request.min_nodes = whole ? resources.nodes : job.spec.min_nodes();
    request.recovering = !job.attempts.empty() && !job.waited;
    for (const auto& [name, hold] : slots_.Parked(job.record.id)) {
      request.held.push_back({name, hold.slots});
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
  request.domains = DomainsOf(attempt, nodes_);
  return request;
}

bool ControllerCore::FormerNodeSuspect(const JobEntry& job) const {
  if (job.attempts.empty()) return false;
  const std::vector<NodeName>& nodes = job.attempts.back().nodes;
  return std::any_of(nodes.begin(), nodes.end(), [&](const NodeName& name) {
    const auto node = nodes_.find(name);
    return node != nodes_.end() && node->second.record.state == NodeState::kSuspect &&
           !job.excluded.contains(name);
  });
}

int ControllerCore::UsedSlots(const NodeEntry& node) const {
  return slots_.Used(node.record.name) + static_cast<int>(node.record.leaked.size());
}

// Jobs whose processes may use the node's GPUs. A job that is not known may be of either kind.
std::vector<JobId> ControllerCore::GpuJobsOn(const NodeEntry& node) const {
  std::vector<JobId> jobs = slots_.Holders(node.record.name);
  for (const LeakedSlot& slot : node.record.leaked) jobs.push_back(slot.job);
  std::erase_if(jobs, [this](const JobId& id) {
    const auto job = jobs_.find(id);
    return job != jobs_.end() && !UsesGpus(job->second);
  });
  return jobs;
}

void ControllerCore::SetWaitReason(JobEntry& job, const std::string& reason) {
  if (job.record.reason == reason) return;
  job.record.reason = reason;
  Mark(job);
  // Nodes that come and go change the reason often; once in the timeline is enough.
  if (std::exchange(job.told_waiting, true)) return;
  RecordEvent(job, {"queued", Severity::kInfo, "waiting: " + reason});
}

void ControllerCore::StartAttempt(JobEntry& job, const GangPlacement& placement) {
  const std::vector<NodeName>& nodes = placement.nodes;
  const Generation generation = ++job.record.generation;
  if (generation == 1) {
    out_.observations.push_back(
        QueueWaitObserved{double(now_.unix_ms - job.record.submitted_unix_ms) / 1000});
  }
  Gang gang;
  gang.began = now_.mono;
  gang.committed_before = job.record.committed_step;
  AttemptRecord attempt = MakeAttempt(job, placement);
  attempt.started_unix_ms = now_.unix_ms;
  attempt.tier = ChooseTier({generation == 1, job.waited, job.kept,
                             job.attempts.empty() ? nodes : job.attempts.back().nodes, nodes});
  job.record.world_size = static_cast<int>(attempt.ranks.size());
  for (const NodeName& node : nodes) gang.nodes.push_back({.name = node});
  for (const NodeName& node : placement.spares) {
    gang.nodes.push_back({.name = node, .spare = true});
  }
  // Preparing takes over what is parked on the gang's nodes; elsewhere nobody needs it.
  for (const GangNode& member : gang.nodes) {
    NoteUnreleased(job, member.name);
    slots_.Take(member.name, job.record.id, generation, job.spec.resources.ranks_per_node);
  }
  EndParked(job);
  if (generation > 1) {
    ++job.record.restarts;
    out_.observations.push_back(RestartObserved{job.attempt().cause_kind, attempt.tier});
  }
  job.attempts.push_back(std::move(attempt));
  CondenseOld(job.attempts);
  job.gang = std::move(gang);
  job.kept = false;
  job.waited = false;
  unused_may_differ_ = true;
  job.progress.clear();
  job.checkpoint_clock.Begin();
  job.told_waiting = false;
  job.record.reason.clear();
  if (job.record.state == JobState::kQueued) job.record.progress_unix_ms = now_.unix_ms;
  Move(job, JobEvent::kPlaced);
  Move(job.attempt(), AttemptEvent::kReserved);
  RecordEvent(job, {"placed", Severity::kInfo,
                    "generation " + std::to_string(generation) + " on " + WhereText(job.attempt()) +
                        (generation == 1 ? "" : "; by " + std::string(Name(job.attempt().tier)))});

  std::vector<const NodeRecord*> records;
  for (const NodeName& node : nodes) records.push_back(&nodes_.at(node).record);
  const Result<std::string> address = ChooseMasterAddress(records);
  if (!address.ok()) {
    Failure failure;
    failure.kind = CauseKind::kBadAddress;
    failure.retryable = false;
    failure.node = nodes.front();
    failure.message = address.status().message();
    failure.at = now_.mono;
    // Nothing was sent to any node, so nothing has to be ended.
    for (GangNode& member : job.gang->nodes) member.quiesced = true;
    return Fail(job, std::move(failure));
  }
  job.attempt().master_address = *address;
  job.gang->phase_deadline = now_.mono + options_.prepare_deadline;
  for (int n = 0; n < static_cast<int>(job.gang->nodes.size()); ++n) SendPrepare(job, n);
  const int spares = static_cast<int>(placement.spares.size());
  if (spares < job.spec.resources.spares) {
    RecordEvent(job, {"spares_missing", Severity::kWarning,
                      std::to_string(spares) + " of " + std::to_string(job.spec.resources.spares) +
                          " spare nodes found; more are taken when nodes have room"});
  }
}

void ControllerCore::NoteUnreleased(JobEntry& job, const NodeName& node) {
  std::vector<NodeName>& pending_release = job.record.pending_release;
  if (std::find(pending_release.begin(), pending_release.end(), node) == pending_release.end()) {
    pending_release.push_back(node);
  }
}

void ControllerCore::SendPrepare(JobEntry& job, int node_rank) {
  const AttemptRecord& attempt = job.attempt();
  Prepare prepare;
  prepare.job = job.record.id;
  prepare.job_name = job.record.name;
  prepare.generation = attempt.generation;
  prepare.spec_yaml = job.record.spec_yaml;
  prepare.output_dir = job.record.output_dir;
  for (const RankRecord& rank : attempt.ranks) {
    if (rank.node_rank == node_rank) prepare.ranks.push_back({rank.rank, rank.local_rank});
  }
  prepare.spare = job.gang->nodes[node_rank].spare;
  prepare.hosts_master = node_rank == 0;
  if (prepare.hosts_master) prepare.master_bind_address = attempt.master_address;
  if (job.spec.train) prepare.standbys = job.spec.restart.standbys;
  Send(job.gang->nodes[node_rank].name, std::move(prepare));
}

void ControllerCore::Handle(const NodeName& node, const Prepared& message) {
  GangNode* member = nullptr;
  JobEntry* job = Fence(node, message.job, message.generation, &member);
  if (job == nullptr || member->prepared) return;
  if (member->spare) return SparePrepared(*job, *member, message);
  if (job->attempt().state != AttemptState::kPreparing) return;
  const bool hosts_master = job->attempt().nodes.front() == node;
  Failure failure;
  failure.kind = CauseKind::kPrepareFailed;
  failure.node = node;
  failure.at = now_.mono;
  if (!message.error.empty()) {
    const std::string error = CutText(message.error, kMaxReasonBytes);
    // What others have run is no fault of the job.
    const bool ran = job->record.started_unix_ms > 0;
    if (ran) Refuse(*job, node, error, !message.retryable);
    failure.retryable = message.retryable || ran;
    failure.message = "node " + node.value + " cannot run it: " + error;
    return Fail(*job, std::move(failure));
  }
  if (hosts_master && message.master_port <= 0) {
    failure.message = "node " + node.value + " bound no port for the rendezvous";
    return Fail(*job, std::move(failure));
  }
  member->prepared = true;
  member->cuda = message.cuda;
  if (hosts_master) job->attempt().master_port = message.master_port;
  const std::vector<GangNode>& members = job->gang->nodes;
  const auto is_ready = [](const GangNode& m) { return m.prepared || m.spare; };
  if (!std::all_of(members.begin(), members.end(), is_ready)) return;
  std::vector<NodeStack> stacks;
  for (const GangNode& m : members) {
    if (m.cuda) stacks.push_back({m.name, *m.cuda});
  }
  if (const Status status = CheckCudaStacks(stacks); !status.ok()) {
    // Those that have formed before fit together.
    for (const NodeName& name : NewNodes(*job)) {
      Refuse(*job, name, status.message());
      failure.node = name;
    }
    failure.retryable = job->record.started_unix_ms > 0;
    failure.message = status.message();
    return Fail(*job, std::move(failure));
  }
  LaunchGang(*job);
}

std::optional<TimePoint> ControllerCore::TierDeadline(const JobEntry& job, TimePoint from) const {
  if (job.attempts.back().tier != Tier::kInPlace) return std::nullopt;
  // Nobody knows how long a step may take: a restart of ours has forgotten it.
  if (job.slowest_step <= 0) return std::nullopt;
  return from + std::max(options_.tier_budget, FromSeconds(10 * job.slowest_step));
}

void ControllerCore::LaunchGang(JobEntry& job) {
  AttemptRecord& attempt = job.attempt();
  Move(attempt, AttemptEvent::kPrepared);
  if (options_.new_token) attempt.rendezvous_token = options_.new_token();
  job.gang->phase_deadline = now_.mono + options_.launch_deadline;
  job.gang->tier_deadline = TierDeadline(job, now_.mono);
  if (job.record.started_unix_ms == 0) {
    job.record.started_unix_ms = now_.unix_ms;
    job.time_limit_at = TimeLimitAt(job, now_);
  }
  WatchFromStart(job);
  RecordEvent(job, {"launched", Severity::kInfo,
                    std::to_string(WorldSize(job)) + (WorldSize(job) == 1 ? " rank" : " ranks") +
                        " launched, rendezvous at " + attempt.master_address + ":" +
                        std::to_string(attempt.master_port)});
  SendLaunch(job, 0, static_cast<int>(attempt.nodes.size()));
  // The node that was to write a commit record is gone with its order.
  const NodeName& front = attempt.nodes.front();
  const bool moved =
      job.attempts.size() > 1 && job.attempts[job.attempts.size() - 2].nodes.front() != front;
  if (moved) ResendCommitted(job, front);
}

void ControllerCore::SparePrepared(JobEntry& job, GangNode& member, const Prepared& message) {
  if (job.attempt().state == AttemptState::kAborting) return;
  const NodeName node = member.name;
  if (!message.error.empty()) {
    const std::string error = CutText(message.error, kMaxReasonBytes);
    Refuse(job, node, error);
    return DropSpare(job, node, "it cannot run the job: " + error);
  }
  member.prepared = true;
}

void ControllerCore::WatchFromStart(JobEntry& job) {
  std::vector<NodeName> nodes;
  for (const RankRecord& rank : job.attempt().ranks) nodes.push_back(rank.node);
  job.hangs.Begin(nodes, now_.mono);
  job.stragglers.Begin(std::move(nodes));
  // Of an attempt that was taken over from the store.
  for (const RankRecord& rank : job.attempt().ranks) {
    if (rank.state == RankState::kExited) job.hangs.RankEnded(rank.rank);
  }
}

void ControllerCore::SendLaunch(JobEntry& job, int first_node, int last_node) {
  const AttemptRecord& attempt = job.attempt();
  Launch launch;
  launch.job = job.record.id;
  launch.generation = attempt.generation;
  launch.master_address = attempt.master_address;
  launch.master_port = attempt.master_port;
  launch.rendezvous_token = attempt.rendezvous_token;
  launch.world_size = WorldSize(job);
  launch.node_count = static_cast<int>(attempt.nodes.size());
  launch.local_world_size = job.spec.resources.ranks_per_node;
  launch.restart_count = static_cast<int>(attempt.generation - 1);
  // torchrun counts what follows the first attempt.
  launch.max_restarts = std::max(0, job.spec.restart.max_without_progress - 1);
  for (const CheckpointRecord& point : ResumePoints(job)) launch.resume.push_back(InfoOf(point));
  launch.buddy_ring = BuddyRing(DomainsOf(attempt, nodes_));
  for (int n = first_node; n < last_node; ++n) {
    launch.node_rank = n;
    // Rank 0 chooses among them; the other nodes need to know which directories to leave alone.
    if (n > 0) {
      for (CheckpointInfo& checkpoint : launch.resume) checkpoint.shards.clear();
    }
    Send(attempt.nodes[n], launch);
  }
}

}  // namespace muster
