#include "coordinator/control/attempt_end.h"

#include <algorithm>
#include <utility>

#include "coordinator/control/checkpoints.h"
#include "coordinator/control/gang_nodes.h"
#include "coordinator/control/gang_orders.h"
#include "coordinator/control/job_end.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/queue_usage.h"
#include "coordinator/control/restart_policy.h"
#include "coordinator/control/tier.h"
#include "coordinator/control/words.h"
#include "coordinator/detect/cause_card.h"

namespace muster::control {
namespace {

// Far above what a gang can produce; a defective worker must not fill the memory.
constexpr std::size_t kMaxFailures = 10000;
constexpr Duration kErrorTimeout = std::chrono::seconds(2);  // a trainer that had an error exits
// A rank that lost its peers: how long to wait for the cause.
constexpr Duration kSymptomTimeout = std::chrono::milliseconds(300);

// The job itself caused it, as far as is known.
bool IsCharged(CauseKind kind) {
  return kind != CauseKind::kNodeStopped && kind != CauseKind::kDrained &&
         kind != CauseKind::kRegrouped;
}

// Whether the attempt that ended progressed further than those before it. Records what it reached.
bool TakeProgress(JobEntry& job) {
  const Step last = job.attempt().last_step;
  const bool progressed =
      job.record.committed_step > job.gang->committed_before || last > job.record.best_step;
  job.record.best_step = std::max(job.record.best_step, last);
  return progressed;
}

// The attempt failed before all of its ranks had found each other.
bool NeverUp(CauseKind kind) {
  return kind == CauseKind::kPrepareFailed || kind == CauseKind::kPrepareTimeout ||
         kind == CauseKind::kLaunchTimeout || kind == CauseKind::kFormTimeout;
}

// An exit has more information than the report before it, and happened when that report arrived.
// Returns the failure as it is kept, or nullptr if there is no room.
const Failure* AddFailure(JobEntry& job, Failure failure) {
  std::vector<Failure>& failures = job.gang->failures;
  const auto known = std::find_if(failures.begin(), failures.end(), [&](const Failure& other) {
    return other.rank >= 0 && other.rank == failure.rank && other.kind == failure.kind;
  });
  if (known != failures.end()) {
    failure.at = std::min(failure.at, known->at);
    *known = std::move(failure);
    return &*known;
  }
  if (failures.size() >= kMaxFailures) return nullptr;
  return &failures.emplace_back(std::move(failure));
}

void RecordCause(Transaction& tx, JobEntry& job) {
  const Failure* primary = PrimaryFailure(job.gang->failures);
  if (primary == nullptr) return;
  AttemptRecord& attempt = job.attempt();
  attempt.cause_kind = primary->kind;
  attempt.retryable = primary->retryable;
  attempt.cause = primary->message;
  attempt.failed_rank = primary->rank;
  attempt.failed_node = primary->node;
  attempt.log_tail = primary->log_tail;
  attempt.card = BuildCauseCard({primary->kind, primary->message, primary->node, WorldSize(job),
                                 primary->exit, primary->out_of_memory, primary->error,
                                 primary->hang, primary->last, primary->facts, primary->log_tail},
                                job.spec);
  tx.MarkAttempt(job);
}

void AbortFailed(Transaction& tx, JobEntry& job, bool eager = false) {
  // A job that ends anyway is not recovered, whatever happens to it in the meantime.
  if (job.record.stop != StopKind::kNone) return AbortStopped(tx, job);
  RecordCause(tx, job);
  AttemptRecord& attempt = job.attempt();
  if (attempt.retryable) tx.Move(job, JobEvent::kFault);
  job.record.reason = attempt.cause;
  tx.RecordEvent(
      job, {"aborting", Severity::kWarning,
            "ending generation " + std::to_string(attempt.generation) + ": " + attempt.cause});
  BeginAbort(tx, job, {.reason = attempt.cause, .keep = MayKeep(job), .eager = eager});
}

void RecoverOrFail(Transaction& tx, JobEntry& job) {
  AttemptRecord& attempt = job.attempt();
  JobRecord& record = job.record;
  const Failure* primary = PrimaryFailure(job.gang->failures);
  job.fault.reset();
  if (const std::optional<TimePoint> since = In<Aborting>(*job.gang)->since) {
    job.fault =
        Fault{primary == nullptr ? *since : std::min(primary->at, *since), *since, tx.now.mono};
  }
  const bool trained_before = record.best_step > 0;
  const bool progressed = TakeProgress(job);
  RestartInput input;
  input.retryable = attempt.retryable;
  input.progressed = progressed;
  const bool refused = NeverUp(attempt.cause_kind) && record.started_unix_ms > 0 &&
                       job.backoff.Counts(attempt.failed_node);
  input.charged = IsCharged(attempt.cause_kind) && !refused;
  // Other nodes have found everything that this node lacks.
  if (attempt.cause_kind == CauseKind::kBadInput && !attempt.failed_node.empty() &&
      trained_before && !job.gang->first_step) {
    Refuse(tx, job, attempt.failed_node, attempt.cause);
    input.retryable = true;
  }
  if (job.attempts.size() > 1 && job.spec.train) {
    const AttemptRecord& before = job.attempts[job.attempts.size() - 2];
    input.same_fault = IsSameFault(before, attempt);
    input.memory_again = attempt.cause_kind == CauseKind::kOutOfMemory &&
                         before.cause_kind == CauseKind::kOutOfMemory;
  }
  input.attempts_without_progress = record.attempts_without_progress;
  input.max_without_progress = job.spec.restart.max_without_progress;
  input.first_backoff = tx.options.first_backoff;
  input.max_backoff = tx.options.max_backoff;
  const RestartDecision decision = DecideRestart(input);
  record.attempts_without_progress = decision.attempts_without_progress;
  if (!decision.restart) {
    std::string reason = decision.why_not.empty() ? "" : decision.why_not + "; the last one: ";
    return FinishJob(tx, job, JobEvent::kFail, reason + attempt.cause);
  }
  job.gang.reset();
  tx.state.with_gang.erase(record.id);
  tx.state.planned.insert(record.id);
  record.reason = attempt.cause;
  tx.Move(job, JobEvent::kFault);
  if (decision.delay > Duration::zero()) {
    job.not_before = tx.now.mono + decision.delay;
    tx.RecordEvent(job, {"backoff", Severity::kInfo,
                         "next attempt in " + SecondsText(ToSeconds(decision.delay)) + " (" +
                             std::to_string(decision.attempts_without_progress) +
                             " attempts in a row without progress)"});
  }
}

void EndAttempt(Transaction& tx, JobEntry& job) {
  AttemptRecord& attempt = job.attempt();
  attempt.ended_unix_ms = tx.now.unix_ms;
  BookUsage(tx, job);
  tx.Move(attempt, AttemptEvent::kQuiesced);
  DiscardUnfinished(tx, job);
  job.survivors = In<Aborting>(*job.gang)->survivors;
  tx.state.holds.ParkGang(job.record.id);
  tx.state.reschedule = true;
  // A gang that goes on after a fault may wait for what it had been lent.
  tx.state.pass_is_urgent |= !attempt.lent.empty();
  const bool cancelled = job.record.stop == StopKind::kCancel;
  const bool finished = attempt.cause_kind == CauseKind::kFinished && !cancelled;
  if (job.record.stop != StopKind::kNone && !finished) {
    attempt.cause_kind = CauseOf(job.record.stop);
    attempt.cause = job.record.reason;
    if (TakeProgress(job)) job.record.attempts_without_progress = 0;
    return EndStopped(tx, job);
  }
  if (finished) {
    std::string reason = "finished";
    if (job.record.step > 0) reason += " at step " + std::to_string(job.record.step);
    if (job.record.restarts > 0) {
      reason += " after " + std::to_string(job.record.restarts) +
                (job.record.restarts == 1 ? " restart" : " restarts");
    }
    return FinishJob(tx, job, JobEvent::kSucceed, std::move(reason));
  }
  tx.state.pass_is_urgent = true;
  RecoverOrFail(tx, job);
}

bool HasLeakedDevice(const NodeEntry& node, const std::vector<std::string>& devices) {
  return std::ranges::any_of(node.record.leaked, [&devices](const LeakedSlot& leaked) {
    return std::ranges::find_first_of(leaked.devices, devices) != leaked.devices.end();
  });
}

// Processes of older generations that do not end may leave fewer slots than were reserved, or have
// a device of the new one.
bool GivenUpForWantOfRoom(Transaction& tx, JobEntry& job, NodeEntry& node) {
  const GangNode* member = FindMember(job, node.record.name);
  if (member == nullptr || member->prepared) return false;
  const bool room = UsedSlots(tx.state, node) <= node.record.slots &&
                    !HasLeakedDevice(node, DevicesOn(job.attempts.back(), node.record.name));
  if (room) return false;
  if (job.attempt().state == AttemptState::kAborting) return false;
  const std::string why = "processes on node " + member->name.value +
                          " survived SIGKILL, and too few slots or GPUs are left beside them";
  if (member->spare) {
    DropSpare(tx, job, node.record.name, why);
    return true;
  }
  if (job.attempt().state != AttemptState::kPreparing) return false;
  Fail(
      tx, job,
      {.kind = CauseKind::kPrepareFailed, .node = member->name, .message = why, .at = tx.now.mono});
  return true;
}

void MemberQuiesced(Transaction& tx, JobEntry& job, GangNode& member, const Quiesced& message) {
  const std::vector<int>& parked_ranks = message.parked_ranks;
  member.quiesced = true;
  std::optional<Survivors>& survivors = In<Aborting>(*job.gang)->survivors;
  if (survivors && member.name == job.attempt().nodes.front())
    survivors->next_master_port = message.next_master_port;
  // Parked processes keep the node's slots for the job's next gang. Slots of unkillable processes
  // are already leaked; those of older generations were never this gang's.
  const auto left = job.spec.resources.ranks_per_node -
                    std::ranges::count_if(job.attempt().ranks, [&](const RankRecord& rank) {
                      return rank.node == member.name &&
                             std::ranges::count(message.unkillable_pids, rank.pid) > 0;
                    });
  const int held = std::max(static_cast<int>(left), static_cast<int>(parked_ranks.size()));
  tx.state.holds.Quiesce(member.name, job.record.id,
                         message.keeps_any() ? std::max(held, message.standbys) : 0);
  for (RankRecord& rank : job.attempt().ranks) {
    if (rank.node != member.name || rank.state != RankState::kStopping) continue;
    const bool kept =
        std::find(parked_ranks.begin(), parked_ranks.end(), rank.rank) != parked_ranks.end();
    MoveRank(job, rank, kept ? RankEvent::kKept : RankEvent::kExited);
    if (!kept) rank.end = {.exit = {.signal = 9}};
  }
  tx.Changed(job);
}

}  // namespace

bool MayKeep(const JobEntry& job) {
  const AttemptRecord& attempt = job.attempts.back();
  const RankReports* reports = ReportsOf(std::as_const(*job.gang));
  KeepInput input;
  input.train = job.spec.train.has_value();
  input.in_place = job.spec.restart.in_place;
  input.retryable = attempt.retryable;
  input.stopping = job.record.stop != StopKind::kNone;
  // The second halves also hold after a restart of the coordinator.
  input.formed =
      (reports != nullptr && reports->all_formed.has_value()) || attempt.resumed_step >= 0;
  input.stepped = job.gang->first_step ||
                  (attempt.resumed_step >= 0 && attempt.last_step > attempt.resumed_step);
  input.tier = attempt.tier;
  return KeepsProcesses(input);
}

void Fail(Transaction& tx, JobEntry& job, Failure failure) {
  AttemptRecord& attempt = job.attempt();
  // After a restart of the coordinator the node reports the same exit again, so the Abort that it
  // causes need not wait until it is stored.
  const bool exited = failure.exit.has_value();
  const Failure* added = AddFailure(job, std::move(failure));
  if (attempt.state == AttemptState::kAborting) {
    // An abort brings thousands of failures with it; few of them add information about the cause.
    // What ended the attempt on purpose outranks what its ranks report as they end.
    const bool news = added != nullptr && added == PrimaryFailure(job.gang->failures);
    if (news && IsFailure(attempt.cause_kind)) RecordCause(tx, job);
    return;
  }
  // Applies to a symptom too: whatever its cause is, the gang is broken. The cause is chosen from
  // all failures that were reported by the time the gang is gone.
  AbortFailed(tx, job, exited);
}

void OnTrainerError(Transaction& tx, JobEntry& job, int rank, const TrainerError& error) {
  Gang& gang = *job.gang;
  if (!gang.errors.emplace(rank, error).second) return;
  if (job.attempt().state == AttemptState::kAborting) return;
  if (IsSymptom(error)) return OnSymptom(tx, job, rank, error);
  // Its exit follows and has more information; the coordinator does not wait for a trainer that
  // hangs instead.
  const TimePoint timeout = tx.now.mono + kErrorTimeout;
  gang.fault_deadline = std::min(gang.fault_deadline.value_or(timeout), timeout);
  if (!gang.failures.empty()) FaultTimeoutOver(tx, job);
}

void OnSymptom(Transaction& tx, JobEntry& job, int rank, const TrainerError& error) {
  Gang& gang = *job.gang;
  const RankRecord& record = job.attempt().ranks[rank];
  Failure failure = Classify({rank, record.node, job.spec.train.has_value(), std::nullopt, error});
  failure.at = tx.now.mono;
  AddFailure(job, std::move(failure));
  const TimePoint timeout = tx.now.mono + kSymptomTimeout;
  gang.fault_deadline = std::min(gang.fault_deadline.value_or(timeout), timeout);
  // There is nothing left to wait for if the cause is known, or if a silent node cannot report it.
  const bool known = std::any_of(gang.errors.begin(), gang.errors.end(),
                                 [](const auto& entry) { return !IsSymptom(entry.second); });
  std::vector<NodeName> silent;
  for (const GangNode& member : gang.nodes) {
    if (tx.node(member.name).suspect) silent.push_back(member.name);
  }
  if (known || !silent.empty()) FaultTimeoutOver(tx, job);
  for (const NodeName& name : silent) tx.to_decide.insert(name);
}

void FaultTimeoutOver(Transaction& tx, JobEntry& job) {
  Gang& gang = *job.gang;
  gang.fault_deadline.reset();
  if (job.attempt().state == AttemptState::kAborting) return;
  for (const auto& [rank, error] : gang.errors) {
    const RankRecord& record = job.attempt().ranks[rank];
    if (record.state == RankState::kExited || IsSymptom(error)) continue;
    Failure failure =
        Classify({rank, record.node, job.spec.train.has_value(), std::nullopt, error});
    failure.at = tx.now.mono;
    AddFailure(job, std::move(failure));
  }
  if (!gang.failures.empty()) AbortFailed(tx, job);
}

void RanksMissing(Transaction& tx, JobEntry& job, const NodeName& node, bool nothing_hosted) {
  if (nothing_hosted) {
    FindMember(job, node)->quiesced = true;
    tx.state.holds.Quiesce(node, job.record.id, 0);
  }
  AttemptRecord& attempt = job.attempt();
  bool missing = false;
  for (RankRecord& rank : attempt.ranks) {
    if (rank.node != node || rank.state == RankState::kExited) continue;
    missing = true;
    if (!nothing_hosted) continue;
    MoveRank(job, rank, RankEvent::kExited);
    rank.end = {.exit = {.signal = 9}};  // ranks end with their guardian
  }
  if (!missing) return;
  Failure failure{
      .kind = CauseKind::kGuardianLost,
      .node = node,
      .message = "node " + node.value + " no longer has the ranks it had (their guardian is gone)",
      .at = tx.now.mono};
  tx.RecordEvent(job, {"guardian_lost", Severity::kError, failure.message});
  Fail(tx, job, std::move(failure));
}

void AbortStopped(Transaction& tx, JobEntry& job) {
  AttemptRecord& attempt = job.attempt();
  attempt.cause_kind = CauseOf(job.record.stop);
  attempt.cause = job.record.reason;
  // A gang that was saving its state gets no more time; the machine may disappear at any moment.
  const Duration grace = SetsAside(job.record.stop) ? Duration::zero() : kCancelGrace;
  BeginAbort(tx, job, {job.record.reason, grace});
}

void EndOnPurpose(Transaction& tx, JobEntry& job, CauseKind kind, const std::string& reason) {
  if (job.record.stop != StopKind::kNone) return AbortStopped(tx, job);
  AttemptRecord& attempt = job.attempt();
  attempt.cause_kind = kind;
  attempt.cause = reason;
  job.record.reason = reason;
  tx.Move(job, JobEvent::kFault);
  tx.RecordEvent(job, {"aborting", Severity::kInfo,
                       "ending generation " + std::to_string(attempt.generation) + ": " + reason});
  BeginAbort(tx, job, {reason, Duration::zero(), MayKeep(job)});
}

void BeginAbort(Transaction& tx, JobEntry& job, AbortOptions options) {
  CommitComplete(tx, job);  // The next attempt, or a client that reads the job, must find it.
  Gang& gang = *job.gang;
  Aborting aborting{.reason = std::move(options.reason), .grace = options.grace};
  aborting.since = tx.now.mono;
  aborting.deadline = tx.now.mono + kAbortDeadline + options.grace;
  if (options.keep) aborting.survivors.emplace();
  const GangStop* stop = StopOf(gang);
  if (stop != nullptr && SetsAside(job.record.stop)) aborting.save_deadline = stop->deadline;
  gang.fault_deadline.reset();
  job.grow_at.reset();
  tx.Enter(job, std::move(aborting));
  for (RankRecord& rank : job.attempt().ranks) {
    if (const auto next = Apply(rank.state, RankEvent::kStop)) rank.state = *next;
  }
  for (int n = 0; n < static_cast<int>(gang.nodes.size()); ++n) {
    if (!gang.nodes[n].quiesced) SendAbort(tx, job, n, options.eager);
  }
  MaybeEndAttempt(tx, job);
}

void Handle(Transaction& tx, const NodeName& node, const Quiesced& message) {
  NodeEntry& entry = tx.node(node);
  JobEntry* known = tx.FindJob(message.job);
  MarkLeaked(tx, entry, message.job, message.unkillable_pids);  // by what the job holds
  const bool cleared =
      !message.keeps_any() && tx.state.holds.Prove(node, message.job, message.generation);
  tx.state.reschedule |= cleared;
  // It may belong to an older generation than the one that the node is being prepared for.
  if (known != nullptr && GivenUpForWantOfRoom(tx, *known, entry)) return;
  if (cleared &&
      (known == nullptr || !known->gang || known->attempt().generation != message.generation)) {
    return;
  }

  GangNode* member = nullptr;
  JobEntry* job = tx.Fence(node, message.job, message.generation, &member);
  if (job == nullptr || member->quiesced) return;
  AttemptRecord& attempt = job->attempt();
  if (attempt.state != AttemptState::kAborting) {
    // A node that is not prepared yet reports only that older generations are gone.
    const bool starts = member->spare || attempt.state == AttemptState::kPreparing ||
                        attempt.state == AttemptState::kLaunching;
    if (starts && !member->prepared) return;
    if (member->spare) {
      Refuse(tx, *job, node, "its guardian has ended");
      return DropSpare(tx, *job, node, "its guardian has ended");
    }
    const auto left =
        std::find_if(attempt.ranks.begin(), attempt.ranks.end(), [&](const RankRecord& rank) {
          return rank.node == node && rank.state != RankState::kExited;
        });
    if (left != attempt.ranks.end() && message.keeps_any()) {
      // The ranks have parked for an Abort that the coordinator sent, but had not stored when it
      // crashed. The node whose rank caused it reports the cause.
      return OnSymptom(tx, *job, left->rank, {"peer_lost", "it parked"});
    }
    if (left != attempt.ranks.end()) return RanksMissing(tx, *job, node, true);
    member->quiesced = true;
    // Its ranks ended on their own; a standby may be left.
    const bool standby = job->spec.train && job->spec.restart.standbys > 0;
    return tx.state.holds.Quiesce(node, job->record.id,
                                  standby ? job->spec.resources.ranks_per_node : 0);
  }
  MemberQuiesced(tx, *job, *member, message);
  MaybeEndAttempt(tx, *job);
}

void MaybeEndAttempt(Transaction& tx, JobEntry& job) {
  if (job.attempt().state != AttemptState::kAborting) return;
  for (GangNode& member : job.gang->nodes) {
    // Nothing ran on a spare; the attempt does not wait for a silent one.
    if (member.spare && !member.quiesced && tx.node(member.name).suspect) {
      Orphan(tx, job, member);
    }
    if (!member.quiesced) return;
  }
  // A client that reads a finished job must find its last checkpoint with its commit record, and
  // verified if that does not take long. For a job that is set aside, the node that writes the
  // record may be taken away.
  const bool finished = job.attempt().cause_kind == CauseKind::kFinished;
  const Aborting& aborting = *In<Aborting>(*job.gang);
  const bool has_time = SetsAside(job.record.stop) && aborting.save_deadline;
  const bool waits = (finished || has_time) && job.record.stop != StopKind::kCancel &&
                     aborting.deadline.has_value();
  const bool verifies = finished && !job.verification->directory.empty();
  if (waits && (ManifestPending(job) || verifies)) return;
  EndAttempt(tx, job);
}

}  // namespace muster::control
