// Failures: from the first sign to the next attempt or the end of the job.

#include <algorithm>

#include "coordinator/control/core.h"
#include "coordinator/control/restart_policy.h"
#include "coordinator/detect/cause_card.h"

namespace muster {
namespace {

// Far above what a gang can produce; a worker gone mad must not fill the memory.
constexpr std::size_t kMaxFailures = 10000;

// By the job's own doing, as far as anybody can tell.
bool IsCharged(CauseKind kind) {
  return kind != CauseKind::kNodeStopped && kind != CauseKind::kDrained &&
         kind != CauseKind::kRegrouped;
}

// Whether the attempt that has ended got further than those before it; what it reached is recorded.
bool TakeProgress(JobEntry& job) {
  const Step last = job.attempt().last_step;
  const bool progressed =
      job.record.committed_step > job.gang->committed_before || last > job.record.best_step;
  job.record.best_step = std::max(job.record.best_step, last);
  return progressed;
}

// A node did not get as far as having its ranks.
bool NeverUp(CauseKind kind) {
  return kind == CauseKind::kPrepareFailed || kind == CauseKind::kPrepareTimeout ||
         kind == CauseKind::kLaunchTimeout || kind == CauseKind::kFormTimeout;
}

}  // namespace

void ControllerCore::OnTrainerError(JobEntry& job, int rank, const TrainerError& error) {
  Gang& gang = *job.gang;
  if (!gang.errors.emplace(rank, error).second) return;
  if (job.attempt().state == AttemptState::kAborting) return;
  if (IsSymptom(error)) return OnSymptom(job, rank, error);
  // Its exit follows and says more; a trainer that hangs instead is not waited for.
  const TimePoint timeout = now_.mono + options_.error_timeout;
  gang.fault_deadline = std::min(gang.fault_deadline.value_or(timeout), timeout);
  if (!gang.failures.empty()) FaultTimeoutOver(job);
}

void ControllerCore::OnSymptom(JobEntry& job, int rank, const TrainerError& error) {
  Gang& gang = *job.gang;
  const RankRecord& record = job.attempt().ranks[rank];
  Failure failure = Classify({rank, record.node, job.spec.train.has_value(), std::nullopt, error});
  failure.at = now_.mono;
  AddFailure(job, std::move(failure));
  const TimePoint timeout = now_.mono + options_.symptom_timeout;
  gang.fault_deadline = std::min(gang.fault_deadline.value_or(timeout), timeout);
  // Where the cause is known, or will not be told by a node that is silent, nothing is waited for.
  const bool known = std::any_of(gang.errors.begin(), gang.errors.end(),
                                 [](const auto& entry) { return !IsSymptom(entry.second); });
  std::vector<NodeName> silent;
  for (const GangNode& member : gang.nodes) {
    if (nodes_.at(member.name).suspect) silent.push_back(member.name);
  }
  if (known || !silent.empty()) FaultTimeoutOver(job);
  for (const NodeName& name : silent) DetectLostNode(nodes_.at(name));
}

// The gang is ended for what has been heard: errors whose exits did not follow, and symptoms.
void ControllerCore::FaultTimeoutOver(JobEntry& job) {
  Gang& gang = *job.gang;
  gang.fault_deadline.reset();
  if (job.attempt().state == AttemptState::kAborting) return;
  for (const auto& [rank, error] : gang.errors) {
    const RankRecord& record = job.attempt().ranks[rank];
    if (record.state == RankState::kExited || IsSymptom(error)) continue;
    Failure failure =
        Classify({rank, record.node, job.spec.train.has_value(), std::nullopt, error});
    failure.at = now_.mono;
    AddFailure(job, std::move(failure));
  }
  if (!gang.failures.empty()) AbortFailed(job);
}

// An exit says more than the report before it, and happened when that was heard.
// Returns it as it is kept, or nullptr where there is no room.
const Failure* ControllerCore::AddFailure(JobEntry& job, Failure failure) {
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

void ControllerCore::Fail(JobEntry& job, Failure failure) {
  AttemptRecord& attempt = job.attempt();
  const Failure* added = AddFailure(job, std::move(failure));
  if (attempt.state == AttemptState::kAborting) {
    // Of the thousands that an abort brings with it, few are news of the cause.
    // What ended the attempt on purpose is not outweighed by what its ranks say on their way out.
    const bool news = added != nullptr && added == PrimaryFailure(job.gang->failures);
    if (news && IsFailure(attempt.cause_kind)) RecordCause(job);
    return;
  }
  // Also for a symptom: whatever its cause is, the gang is broken. The cause is taken from all that
  // has been heard when the gang is gone.
  AbortFailed(job);
}

void ControllerCore::AbortFailed(JobEntry& job) {
  // A job that ends anyway is not recovered, whatever happens to it on its way out.
  if (job.record.stop != StopKind::kNone) return AbortStopped(job);
  RecordCause(job);
  AttemptRecord& attempt = job.attempt();
  if (attempt.retryable) Move(job, JobEvent::kFault);
  job.record.reason = attempt.cause;
  RecordEvent(job,
              {"aborting", Severity::kWarning,
               "ending generation " + std::to_string(attempt.generation) + ": " + attempt.cause});
  BeginAbort(job, {attempt.cause, Duration::zero(), MayKeep(job)});
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
  attempt.card = BuildCauseCard({primary->kind, primary->message, primary->node, WorldSize(job),
                                 primary->exit, primary->out_of_memory, primary->error,
                                 primary->hang, primary->last, primary->facts, primary->log_tail},
                                job.spec);
  MarkAttempt(job);
}

void ControllerCore::EndAttempt(JobEntry& job) {
  AttemptRecord& attempt = job.attempt();
  attempt.ended_unix_ms = now_.unix_ms;
  Move(attempt, AttemptEvent::kQuiesced);
  DiscardUnfinished(job);
  job.kept = job.gang->keep;
  slots_.ParkGang(job.record.id);
  reschedule_ = true;
  const bool cancelled = job.record.stop == StopKind::kCancel;
  const bool finished = attempt.cause_kind == CauseKind::kFinished && !cancelled;
  if (job.record.stop != StopKind::kNone && !finished) {
    attempt.cause_kind = CauseOf(job.record.stop);
    attempt.cause = job.record.reason;
    if (TakeProgress(job)) job.record.attempts_without_progress = 0;
    return EndStopped(job);
  }
  if (finished) {
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
  if (*job.gang->aborted != TimePoint::min()) {
    const TimePoint aborted = *job.gang->aborted;
    job.fault =
        Fault{primary == nullptr ? aborted : std::min(primary->at, aborted), aborted, now_.mono};
  }
  const bool trained_before = record.best_step > 0;
  const bool progressed = TakeProgress(job);
  RestartInput input;
  input.retryable = attempt.retryable;
  input.progressed = progressed;
  const bool refused = NeverUp(attempt.cause_kind) && job.refusals.Counts(attempt.failed_node);
  input.charged = IsCharged(attempt.cause_kind) && !refused;
  // Others have found all that this node lacks.
  if (attempt.cause_kind == CauseKind::kBadInput && !attempt.failed_node.empty() &&
      trained_before && !job.gang->first_step) {
    Refuse(job, attempt.failed_node, attempt.cause);
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
  input.first_backoff = options_.first_backoff;
  input.max_backoff = options_.max_backoff;
  const RestartDecision decision = DecideRestart(input);
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
    RecordEvent(job, {"backoff", Severity::kInfo,
                      "next attempt in " + SecondsText(ToSeconds(decision.delay)) + " (" +
                          std::to_string(decision.attempts_without_progress) +
                          " attempts in a row without progress)"});
  }
}

}  // namespace muster
