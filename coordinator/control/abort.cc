// The end of an attempt: every node is told, and proves itself empty.

#include <algorithm>

#include "coordinator/control/core.h"

namespace muster {
namespace {

void MarkStuck(JobEntry& job, const NodeEntry& node, const std::vector<std::int64_t>& pids) {
  if (job.attempts.empty()) return;
  for (RankRecord& rank : job.attempt().ranks) {
    if (rank.node != node.record.name) continue;
    if (std::find(pids.begin(), pids.end(), rank.pid) == pids.end()) continue;
    if (const auto next = Apply(rank.state, RankEvent::kStuck)) rank.state = *next;
  }
}

}  // namespace

void ControllerCore::BeginAbort(JobEntry& job, AbortOptions options) {
  CommitComplete(job);  // the next attempt, or who looks at the job, is to find it
  AttemptRecord& attempt = job.attempt();
  Move(attempt, AttemptEvent::kAbort);
  Gang& gang = *job.gang;
  gang.aborted = now_.mono;
  gang.abort_reason = std::move(options.reason);
  gang.grace = options.grace;
  gang.keep = options.keep;
  gang.fault_deadline.reset();
  gang.tier_deadline.reset();
  // Until then the commit record of what was saved is waited for.
  if (job.record.stop != StopKind::kSuspend) gang.stop_deadline.reset();
  job.grow_at.reset();
  gang.phase_deadline = now_.mono + options_.abort_deadline + options.grace;
  for (RankRecord& rank : attempt.ranks) {
    if (const auto next = Apply(rank.state, RankEvent::kStop)) rank.state = *next;
  }
  for (int n = 0; n < static_cast<int>(gang.nodes.size()); ++n) {
    if (!gang.nodes[n].quiesced) SendAbort(job, n);
  }
  MaybeEndAttempt(job);
}

void ControllerCore::SendAbort(JobEntry& job, int node_rank) {
  const Gang& gang = *job.gang;
  Abort abort{job.record.id, job.attempt().generation, gang.abort_reason, ToSeconds(gang.grace)};
  if (gang.keep) {
    abort.park_seconds = ToSeconds(options_.park);
    abort.kill_ranks.assign(gang.kill_ranks.begin(), gang.kill_ranks.end());
  }
  Send(gang.nodes[node_rank].name, std::move(abort));
}

void ControllerCore::Handle(const NodeName& node, const Quiesced& message) {
  NodeEntry& entry = nodes_.at(node);
  const bool cleared = !message.keeps_any() && slots_.Prove(node, message.job, message.generation);
  reschedule_ |= cleared;
  const auto known = jobs_.find(message.job);
  MarkLeaked(entry, message.job, message.unkillable_pids);
  // It may be of an older generation than the one that the node is being prepared for.
  if (known != jobs_.end() && GivenUpForWantOfRoom(known->second, entry)) return;
  if (cleared && (known == jobs_.end() || !known->second.gang ||
                  known->second.attempt().generation != message.generation)) {
    return;
  }

  GangNode* member = nullptr;
  JobEntry* job = Fence(node, message.job, message.generation, &member);
  if (job == nullptr || member->quiesced) return;
  AttemptRecord& attempt = job->attempt();
  if (attempt.state != AttemptState::kAborting) {
    // Of a node that is not prepared yet this tells only that older generations are gone.
    if ((member->spare || attempt.state == AttemptState::kPreparing) && !member->prepared) return;
    if (member->spare) {
      Refuse(*job, node, "its guardian has ended");
      return DropSpare(*job, node, "its guardian has ended");
    }
    const bool ranks_left =
        std::any_of(attempt.ranks.begin(), attempt.ranks.end(), [&](const RankRecord& rank) {
          return rank.node == node && rank.state != RankState::kExited;
        });
    if (ranks_left) return RanksMissing(*job, node, true);
    member->quiesced = true;
    // Its ranks have ended by themselves; a standby may be left.
    const bool standby = job->spec.train && job->spec.restart.standbys > 0;
    return slots_.Quiesce(node, job->record.id, standby ? job->spec.resources.ranks_per_node : 0);
  }
  MemberQuiesced(*job, *member, message);
  MaybeEndAttempt(*job);
}

// Processes of older generations that do not end may leave fewer slots than were reserved.
bool ControllerCore::GivenUpForWantOfRoom(JobEntry& job, NodeEntry& node) {
  const GangNode* member = FindMember(job, node.record.name);
  if (member == nullptr || member->prepared || UsedSlots(node) <= node.record.slots) return false;
  if (job.attempt().state == AttemptState::kAborting) return false;
  const std::string why = "processes on node " + member->name.value +
                          " survived SIGKILL, and too few slots are left beside them";
  if (member->spare) {
    DropSpare(job, node.record.name, why);
    return true;
  }
  if (job.attempt().state != AttemptState::kPreparing) return false;
  Failure failure;
  failure.kind = CauseKind::kPrepareFailed;
  failure.node = member->name;
  failure.message = why;
  failure.at = now_.mono;
  Fail(job, std::move(failure));
  return true;
}

void ControllerCore::MemberQuiesced(JobEntry& job, GangNode& member, const Quiesced& message) {
  const std::vector<int>& parked_ranks = message.parked_ranks;
  member.quiesced = true;
  // What waits keeps the node's slots for the job's next gang. What is unkillable is leaked
  // already.
  const int left =
      job.spec.resources.ranks_per_node - static_cast<int>(message.unkillable_pids.size());
  slots_.Quiesce(member.name, job.record.id,
                 message.keeps_any() ? std::max(left, message.standbys) : 0);
  for (RankRecord& rank : job.attempt().ranks) {
    if (rank.node != member.name || rank.state != RankState::kStopping || rank.pid == 0) continue;
    const bool kept =
        std::find(parked_ranks.begin(), parked_ranks.end(), rank.rank) != parked_ranks.end();
    MoveRank(job, rank, kept ? RankEvent::kKept : RankEvent::kExited);
    if (!kept) rank.exit = {0, 9};
  }
  Changed(job);
}

// `pids` are all processes of the job on this node that survived SIGKILL.
void ControllerCore::MarkLeaked(NodeEntry& node, const JobId& id,
                                const std::vector<std::int64_t>& pids) {
  std::vector<LeakedSlot> leaked = node.record.leaked;
  std::erase_if(leaked, [&](const LeakedSlot& slot) { return slot.job == id; });
  for (std::int64_t pid : pids) leaked.push_back({id, pid});
  if (leaked == node.record.leaked) return;
  node.record.leaked = std::move(leaked);
  Mark(node);
  reschedule_ = true;
  const std::string whose = "job " + id.value + " on " + node.record.name.value;
  if (pids.empty()) {
    if (const auto job = jobs_.find(id); job != jobs_.end()) {
      job->second.refusals.Accept(node.record.name);
    }
    return RecordClusterEvent({"slots_back", Severity::kInfo,
                               "the processes of " + whose + " that survived SIGKILL are gone"});
  }
  if (const auto job = jobs_.find(id); job != jobs_.end()) MarkStuck(job->second, node, pids);
  RecordClusterEvent({"slots_leaked", Severity::kError,
                      std::to_string(pids.size()) + " processes of " + whose +
                          " survived SIGKILL; their slots are not used until they are gone"});
}

void ControllerCore::Orphan(JobEntry& job, GangNode& member) {
  member.quiesced = true;
  if (FindNode(member.name) == nullptr) return;
  slots_.Orphan(member.name, job.record.id, job.attempt().generation,
                job.spec.resources.ranks_per_node);
  Note(job, "node " + member.name.value +
                " did not prove that its processes are gone; its slots wait for that");
}

void ControllerCore::MaybeEndAttempt(JobEntry& job) {
  if (job.attempt().state != AttemptState::kAborting) return;
  for (GangNode& member : job.gang->nodes) {
    // Nothing ran on a spare; one that is silent holds nobody up.
    if (member.spare && !member.quiesced && nodes_.at(member.name).suspect) {
      Orphan(job, member);
    }
    if (!member.quiesced) return;
  }
  // Who looks at a finished job is to find its last checkpoint with its commit record, and read
  // again where that does not take long; and the node that writes the record may be taken away from
  // a suspended one.
  const bool finished = job.attempt().cause_kind == CauseKind::kFinished;
  const bool has_time = job.record.stop == StopKind::kSuspend && job.gang->stop_deadline;
  const bool waits = (finished || has_time) && job.record.stop != StopKind::kCancel &&
                     job.gang->phase_deadline.has_value();
  const bool verifies = finished && !job.verification.directory.empty();
  if (waits && (ManifestPending(job) || verifies)) return;
  EndAttempt(job);
}

}  // namespace muster
