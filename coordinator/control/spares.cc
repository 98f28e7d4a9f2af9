// Nodes beside the gang: spares that wait for a loss, and room for a gang that has shrunk.

#include <algorithm>

#include "coordinator/control/core.h"

namespace muster {
namespace {

constexpr Duration kReadyBeforeGrowth = std::chrono::seconds(3);
constexpr Duration kBetweenRegroupings = std::chrono::seconds(60);

}  // namespace

// A job at work that lacks nodes or spares: what it asks of the scheduler.
bool ControllerCore::WantsMoreNodes(const JobEntry& job) const {
  if (!job.gang || job.record.state != JobState::kRunning || job.gang->stopping) return false;
  const AttemptRecord& attempt = job.attempts.back();
  if (attempt.state != AttemptState::kRunning) return false;
  const int missing = job.spec.resources.nodes - static_cast<int>(attempt.nodes.size());
  return missing > 0 || static_cast<int>(attempt.spares.size()) < job.spec.resources.spares;
}

// The nodes are reserved for nobody yet: a gang takes them when it is made anew.
void ControllerCore::GiveMoreNodes(JobEntry& job, const std::vector<NodeName>& nodes) {
  if (static_cast<int>(job.attempt().nodes.size()) >= job.spec.resources.nodes) {
    return AddSpares(job, nodes);
  }
  TimePoint due = job.regrouped ? *job.regrouped + kBetweenRegroupings : TimePoint::min();
  for (const NodeName& name : nodes) {
    due = std::max(due, nodes_.at(name).ready_at + kReadyBeforeGrowth);
  }
  if (due > now_.mono) {
    job.grow_at = due;
    return;
  }
  job.regrouped = now_.mono;
  const std::string reason = "going on with " +
                             std::to_string(job.attempt().nodes.size() + nodes.size()) +
                             " nodes, which have room again";
  // Without snapshots all steps since the last checkpoint would have to be done again.
  if (job.spec.train && job.spec.train->snapshot.every == 0) {
    return StopGang(job, reason, std::nullopt);
  }
  EndOnPurpose(job, CauseKind::kRegrouped, reason);
}

// Ends an attempt that is well, for another that goes on where it was.
void ControllerCore::EndOnPurpose(JobEntry& job, CauseKind kind, const std::string& reason) {
  if (job.record.stop != StopKind::kNone) return AbortStopped(job);
  AttemptRecord& attempt = job.attempt();
  attempt.cause_kind = kind;
  attempt.cause = reason;
  job.record.reason = reason;
  Move(job, JobEvent::kFault);
  RecordEvent(job, {"aborting", Severity::kInfo,
                    "ending generation " + std::to_string(attempt.generation) + ": " + reason});
  BeginAbort(job, {reason, Duration::zero(), MayKeep(job)});
}

void ControllerCore::AddSpares(JobEntry& job, const std::vector<NodeName>& names) {
  for (const NodeName& name : names) {
    job.gang->nodes.push_back({.name = name, .spare = true});
    job.attempt().spares.push_back(name);
    NoteUnreleased(job, name);
    slots_.Take(name, job.record.id, job.attempt().generation, job.spec.resources.ranks_per_node);
    SendPrepare(job, static_cast<int>(job.gang->nodes.size()) - 1);
    RecordEvent(job,
                {"spare_added", Severity::kInfo, "node " + name.value + " is held as a spare"});
  }
  MarkAttempt(job);
}

void ControllerCore::Refuse(JobEntry& job, const NodeName& node, std::string why,
                            bool first_pauses) {
  const Duration pause = job.refusals.Refuse(node, why, now_.mono, first_pauses);
  const std::string then = pause > Duration::zero() ? "; nothing of it is placed there for " +
                                                          SecondsText(ToSeconds(pause))
                                                    : "; it is tried once more";
  RecordEvent(job, {"node_refused", Severity::kWarning,
                    "node " + node.value + " cannot run it: " + std::move(why) + then});
}

void ControllerCore::DropSpare(JobEntry& job, const NodeName& name, const std::string& why) {
  std::erase_if(job.gang->nodes, [&](const GangNode& member) { return member.name == name; });
  std::erase(job.attempt().spares, name);
  slots_.Orphan(name, job.record.id, job.attempt().generation, job.spec.resources.ranks_per_node);
  // A release, not an abort: the node may be taken again in this generation.
  Send(name, Release{job.record.id});
  RecordEvent(job, {"spare_dropped", Severity::kWarning,
                    "node " + name.value + " is no spare any more: " + why});
  MarkAttempt(job);
  reschedule_ = true;
}

}  // namespace muster
