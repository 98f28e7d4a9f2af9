#include "coordinator/control/gang_nodes.h"

#include <algorithm>
#include <utility>

#include "coordinator/control/gang_orders.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/words.h"

namespace muster::control {
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

void NoteUnreleased(JobEntry& job, const NodeName& node) {
  std::vector<NodeName>& pending_release = job.record.pending_release;
  if (std::find(pending_release.begin(), pending_release.end(), node) == pending_release.end()) {
    pending_release.push_back(node);
  }
}

void MarkLeaked(Transaction& tx, NodeEntry& node, const JobId& id,
                const std::vector<std::int64_t>& pids) {
  std::vector<LeakedSlot> leaked = node.record.leaked;
  const auto before =
      std::ranges::stable_partition(leaked, [&](const LeakedSlot& slot) { return slot.job != id; });
  const std::vector<LeakedSlot> known(before.begin(), before.end());
  leaked.erase(before.begin(), before.end());
  for (std::int64_t pid : pids) {
    const auto same = std::ranges::find(known, pid, &LeakedSlot::pid);
    leaked.push_back(same != known.end() ? *same
                                         : LeakedSlot{.job = id,
                                                      .pid = pid,
                                                      .devices = DevicesOfProcess(
                                                          tx.state, id, node.record.name, pid)});
  }
  if (leaked == node.record.leaked) return;
  node.record.leaked = std::move(leaked);
  tx.Mark(node);
  tx.state.reschedule = true;
  const std::string whose = "job " + id.value + " on " + node.record.name.value;
  if (pids.empty()) {
    if (JobEntry* job = tx.FindJob(id)) job->backoff.Accept(node.record.name);
    return tx.RecordClusterEvent({"slots_back", Severity::kInfo,
                                  "the processes of " + whose + " that survived SIGKILL are gone"});
  }
  if (JobEntry* job = tx.FindJob(id)) MarkStuck(*job, node, pids);
  const std::string left =
      std::to_string(pids.size()) + " processes of " + whose + " survived SIGKILL";
  tx.RecordClusterEvent(
      {"slots_leaked", Severity::kError, left + "; their slots are not used until they are gone"});
  DropCrowdedSpares(tx, node.record.name, left);
}

void Orphan(Transaction& tx, JobEntry& job, GangNode& member) {
  member.quiesced = true;
  if (!tx.state.nodes.contains(member.name)) return;
  tx.state.holds.Orphan(member.name, job.record.id, job.attempt().generation,
                        HeldOn(job, member.name));
  tx.Note(job, "node " + member.name.value +
                   " did not prove that its processes are gone; its slots wait for that");
}

void Refuse(Transaction& tx, JobEntry& job, const NodeName& node, std::string why,
            bool first_pauses) {
  const Duration pause = job.backoff.Refuse(node, why, tx.now.mono, first_pauses);
  const std::string then = pause > Duration::zero() ? "; nothing of it is placed there for " +
                                                          SecondsText(ToSeconds(pause))
                                                    : "; it is tried once more";
  tx.RecordEvent(job, {"node_refused", Severity::kWarning,
                       "node " + node.value + " cannot run it: " + std::move(why) + then});
}

void DropSpare(Transaction& tx, JobEntry& job, const NodeName& name, const std::string& why) {
  tx.state.holds.Orphan(name, job.record.id, job.attempt().generation, HeldOn(job, name));
  job.gang->nodes.Remove(name);
  AttemptRecord& attempt = job.attempt();
  const auto spare = std::ranges::find(attempt.spares, name) - attempt.spares.begin();
  attempt.spares.erase(attempt.spares.begin() + spare);
  if (spare < std::ssize(attempt.spare_devices))
    attempt.spare_devices.erase(attempt.spare_devices.begin() + spare);
  // A release, not an abort: the node may be taken again in this generation.
  tx.Send(name, Release{job.record.id});
  tx.RecordEvent(job, {"spare_dropped", Severity::kWarning,
                       "node " + name.value + " is no longer a spare: " + why});
  tx.MarkAttempt(job);
  tx.state.reschedule = true;
}

void DropCrowdedSpares(Transaction& tx, const NodeName& name, const std::string& why) {
  std::vector<JobId> crowded;
  for (const auto& [id, hold] : tx.state.holds.On(name)) {
    if (hold.resources.use == HoldUse::kShared && hold.kind == HoldLedger::Kind::kGang &&
        !HasBesideOwn(tx.state, tx.node(name), hold.resources))
      crowded.push_back(id);
  }
  for (const JobId& id : crowded) {
    JobEntry& other = tx.job(id);
    const GangNode* member = FindMember(other, name);
    // One that is being aborted looks for others when it starts again.
    if (member != nullptr && member->spare && other.attempt().state != AttemptState::kAborting)
      DropSpare(tx, other, name, why);
  }
}

}  // namespace muster::control
