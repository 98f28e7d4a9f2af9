// Failures: from the first sign to the next attempt or the end of the job.

#include <algorithm>

#include "coordinator/control/core.h"
#include "coordinator/control/restart_policy.h"

namespace muster {
namespace {

// Far above what a gang can produce; a worker gone mad must not fill the memory.
constexpr std::size_t kMaxFailures = 10000;

bool IsFailure(CauseKind kind) {
  return kind != CauseKind::kFinished && kind != CauseKind::kCancelled &&
         kind != CauseKind::kTimeLimit;
}

}  // namespace

void ControllerCore::OnTrainerError(JobEntry& job, int rank, const TrainerError& error) {
  Gang& gang = *job.gang;
  if (!gang.errors.emplace(rank, error).second) return;
  if (job.attempt().state == AttemptState::kAborting) return;
  // Its exit follows and says more; a trainer that hangs instead is not waited for.
  if (!gang.fault_deadline) gang.fault_deadline = now_.mono + options_.error_patience;
}

void ControllerCore::FaultPatienceOver(JobEntry& job) {
  Gang& gang = *job.gang;
  gang.fault_deadline.reset();
  if (job.attempt().state == AttemptState::kAborting) return;
  if (gang.failures.empty()) {
    for (const auto& [rank, error] : gang.errors) {
      const RankRecord& record = job.attempt().ranks[rank];
      if (record.state == RankState::kExited) continue;
      Failure failure =
          Classify({rank, record.node, job.spec.train.has_value(), std::nullopt, error});
      failure.at = now_.mono;
      gang.failures.push_back(std::move(failure));
    }
  }
  if (!gang.failures.empty()) AbortFailed(job);
}

void ControllerCore::Fail(JobEntry& job, Failure failure) {
  Gang& gang = *job.gang;
  AttemptRecord& attempt = job.attempt();
  if (gang.failures.size() < kMaxFailures) gang.failures.push_back(std::move(failure));
  if (attempt.state == AttemptState::kAborting) {
    if (IsFailure(attempt.cause_kind)) RecordCause(job);
    return;
  }
  // Also for a symptom: whatever its cause is, the gang is broken. The cause is taken from all that
  // has been heard when the gang is gone.
  AbortFailed(job);
}

void ControllerCore::AbortFailed(JobEntry& job) {
  RecordCause(job);
  AttemptRecord& attempt = job.attempt();
  if (attempt.retryable) Move(job, JobEvent::kFault);
  job.record.reason = attempt.cause;
  Tell(job, {"aborting", Severity::kWarning,
             "ending generation " + std::to_string(attempt.generation) + ": " + attempt.cause});
  BeginAbort(job, {attempt.cause, Duration::zero()});
}

void ControllerCore::RecordCause(JobEntry& job) {
  const Failure* primary = PrimaryFailure(job.gang->failures);
  if (primary == nullptr) return;
  AttemptRecord& attempt = job.attempt();
  attempt.cause_kind = primary->kind;
  attempt.retryable = primary->retryable;
  attempt.cause = primary->message;
  attempt.failed_rank = primary->rank;
  attempt.failed_node = primary->node;
  attempt.log_tail = primary->log_tail;
  MarkAttempt(job);
}

void ControllerCore::BeginAbort(JobEntry& job, AbortOptions options) {
  AttemptRecord& attempt = job.attempt();
  Move(attempt, AttemptEvent::kAbort);
  Gang& gang = *job.gang;
  gang.aborted = now_.mono;
  gang.abort_reason = std::move(options.reason);
  gang.grace = options.grace;
  gang.fault_deadline.reset();
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
  Send(job.gang->nodes[node_rank].name, Abort{job.record.id, job.attempt().generation,
                                              job.gang->abort_reason, ToSeconds(job.gang->grace)});
}

void ControllerCore::Handle(const NodeName& node, const Quiesced& message) {
  NodeEntry& entry = nodes_.at(node);
  const auto leftover = entry.leftovers.find(message.job_id);
  const bool cleared =
      leftover != entry.leftovers.end() && leftover->second.first <= message.generation;
  if (cleared) {
    entry.leftovers.erase(leftover);
    reschedule_ = true;
  }
  const auto known = jobs_.find(message.job_id);
  if (known != jobs_.end()) WithholdUnkillable(known->second, entry, message.unkillable_pids);
  if (cleared && (known == jobs_.end() || !known->second.gang ||
                  known->second.attempt().generation != message.generation)) {
    return;
  }

  GangNode* member = nullptr;
  JobEntry* job = Fence(node, message.job_id, message.generation, &member);
  if (job == nullptr || member->quiesced) return;
  AttemptRecord& attempt = job->attempt();
  if (attempt.state != AttemptState::kAborting) {
    // Of a node that is not prepared yet this tells only that older generations are gone.
    if (attempt.state == AttemptState::kPreparing && !member->prepared) return;
    const bool ranks_left =
        std::any_of(attempt.ranks.begin(), attempt.ranks.end(), [&](const RankRecord& rank) {
          return rank.node == node && rank.state != RankState::kExited;
        });
    if (ranks_left) return RanksMissing(*job, node, true);
    member->quiesced = true;
    return;
  }
  member->quiesced = true;
  for (RankRecord& rank : attempt.ranks) {
    if (rank.node != node || rank.state != RankState::kStopping || rank.pid == 0) continue;
    rank.state = RankState::kExited;
    rank.exit = {0, 9};
  }
  Changed(*job);
  MaybeEndAttempt(*job);
}

void ControllerCore::WithholdUnkillable(JobEntry& job, NodeEntry& node,
                                        const std::vector<std::int64_t>& pids) {
  std::vector<WithheldSlot>& withheld = node.record.withheld;
  const std::size_t before = withheld.size();
  std::erase_if(withheld, [&](const WithheldSlot& slot) { return slot.job == job.record.id; });
  const std::size_t others = withheld.size();
  for (std::int64_t pid : pids) {
    withheld.push_back({job.record.id, pid});
    if (job.attempts.empty()) continue;
    for (RankRecord& rank : job.attempt().ranks) {
      if (rank.node != node.record.name || rank.pid != pid) continue;
      if (const auto next = Apply(rank.state, RankEvent::kStuck)) rank.state = *next;
    }
  }
  if (before == others && pids.empty()) return;
  Mark(node);
  reschedule_ = true;
  if (pids.empty()) return;
  TellCluster({"slots_withheld", Severity::kError,
               std::to_string(pids.size()) + " processes of job " + job.record.id.value + " on " +
                   node.record.name.value +
                   " survived SIGKILL; their slots are not used until they are gone"});
}

void ControllerCore::LeaveBehind(JobEntry& job, GangNode& member) {
  member.quiesced = true;
  NodeEntry* node = FindNode(member.name);
  if (node == nullptr) return;
  node->leftovers[job.record.id] = {job.attempt().generation, job.spec.resources.ranks_per_node};
  Note(job, "node " + member.name.value +
                " did not prove that its processes are gone; its slots wait for that");
}

void ControllerCore::MaybeEndAttempt(JobEntry& job) {
  if (job.attempt().state != AttemptState::kAborting) return;
  for (const GangNode& member : job.gang->nodes) {
    if (!member.quiesced) return;
  }
  // A finished job's last checkpoint should carry its commit record when the user looks.
  const bool finished = job.attempt().cause_kind == CauseKind::kFinished;
  if (finished && job.record.stop == StopKind::kNone && ManifestPending(job)) return;
  EndAttempt(job);
}

void ControllerCore::EndAttempt(JobEntry& job) {
  AttemptRecord& attempt = job.attempt();
  attempt.ended_unix_ms = now_.unix_ms;
  Move(attempt, AttemptEvent::kQuiesced);
  DiscardUnfinished(job);
  reschedule_ = true;
  if (job.record.stop != StopKind::kNone) {
    const bool cancelled = job.record.stop == StopKind::kCancel;
    attempt.cause_kind = cancelled ? CauseKind::kCancelled : CauseKind::kTimeLimit;
    attempt.cause = job.record.reason;
    return FinishJob(job, cancelled ? JobEvent::kCancel : JobEvent::kFail, job.record.reason);
  }
  if (attempt.cause_kind == CauseKind::kFinished) {
    std::string reason = "finished";
    if (job.record.step > 0) reason += " at step " + std::to_string(job.record.step);
    if (job.record.restarts > 0) {
      reason += " after " + std::to_string(job.record.restarts) +
                (job.record.restarts == 1 ? " restart" : " restarts");
    }
    return FinishJob(job, JobEvent::kSucceed, std::move(reason));
  }
  RecoverOrFail(job);
}

void ControllerCore::RecoverOrFail(JobEntry& job) {
  AttemptRecord& attempt = job.attempt();
  JobRecord& record = job.record;
  const Failure* primary = PrimaryFailure(job.gang->failures);
  job.fault.reset();
  if (primary != nullptr && *job.gang->aborted != TimePoint::min()) {
    job.fault = Fault{std::min(primary->at, *job.gang->aborted), *job.gang->aborted, now_.mono};
  }
  const bool progressed =
      record.committed_step > job.gang->committed_before || attempt.last_step > record.best_step;
  record.best_step = std::max(record.best_step, attempt.last_step);
  const RestartDecision decision =
      DecideRestart({attempt.retryable, progressed, attempt.cause_kind != CauseKind::kNodeStopped,
                     record.attempts_without_progress, job.spec.restart.max_without_progress,
                     options_.first_backoff, options_.max_backoff});
  record.attempts_without_progress = decision.attempts_without_progress;
  if (!decision.restart) {
    std::string reason = decision.why_not.empty() ? "" : decision.why_not + "; the last one: ";
    return FinishJob(job, JobEvent::kFail, reason + attempt.cause);
  }
  job.gang.reset();
  record.reason = attempt.cause;
  Move(job, JobEvent::kFault);
  if (decision.delay > Duration::zero()) {
    job.not_before = now_.mono + decision.delay;
    Tell(job, {"backoff", Severity::kInfo,
               "next attempt in " + SecondsText(ToSeconds(decision.delay)) + " (" +
                   std::to_string(decision.attempts_without_progress) +
                   " attempts in a row without progress)"});
  }
}

}  // namespace muster
