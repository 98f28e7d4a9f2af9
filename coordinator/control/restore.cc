// A coordinator that starts on what an earlier one left.
//
// Nothing is sent from here: every node is suspect until its Hello, and what is to be done for a
// live attempt is decided then (nodes.cc), from what really runs.

#include <algorithm>
#include <tuple>

#include "common/job_spec/parse.h"
#include "coordinator/control/core.h"

namespace muster {

Effects ControllerCore::Restore(StoredState state, Now now) {
  now_ = now;
  handled_at_ = now.mono;
  std::sort(state.events.begin(), state.events.end(),
            [](const EventRecord& a, const EventRecord& b) { return a.seq < b.seq; });
  const std::size_t surplus =
      state.events.size() > options_.max_events ? state.events.size() - options_.max_events : 0;
  events_.assign(state.events.begin() + static_cast<std::ptrdiff_t>(surplus), state.events.end());
  if (!events_.empty()) next_seq_ = events_.back().seq + 1;

  for (NodeRecord& record : state.nodes) {
    NodeEntry& node = nodes_[record.name];
    node.record = std::move(record);
    node.heard_at = now.mono;
    node.unused.Begin(node.record.unused, 0, now.mono, now.unix_ms);
    if (node.record.state == NodeState::kLost) continue;
    Move(node, NodeEvent::kDisconnect);
    node.suspect = true;
    UpdateVoice(node);
    node.check_at = now.mono;
  }
  std::sort(state.jobs.begin(), state.jobs.end(),
            [](const JobRecord& a, const JobRecord& b) { return a.submit_order < b.submit_order; });
  for (const JobRecord& record : state.jobs) {
    jobs_[record.id].record = record;
    order_.push_back(record.id);
    next_order_ = std::max(next_order_, record.submit_order + 1);
    scrubs_.Register(record);
    if (!record.key.empty()) keys_[record.key] = record.id;
  }
  for (AttemptRecord& attempt : state.attempts) {
    const auto job = jobs_.find(attempt.job);
    if (job != jobs_.end()) job->second.attempts.push_back(std::move(attempt));
  }
  for (CheckpointRecord& checkpoint : state.checkpoints) {
    const auto job = jobs_.find(checkpoint.job);
    if (job != jobs_.end()) job->second.checkpoints.push_back(std::move(checkpoint));
  }
  for (const JobId& id : order_) {
    RestoreJob(jobs_.at(id));
    scrubs_.Plan(jobs_.at(id));
  }
  for (auto& [name, node] : nodes_) {
    if (node.record.state == NodeState::kDraining) DrainJobs(node);
  }
  if (!jobs_.empty() || !nodes_.empty()) {
    RecordClusterEvent({"coordinator_restarted", Severity::kInfo,
                        "coordinator started again: " + std::to_string(jobs_.size()) +
                            " jobs known, " + std::to_string(live_.size()) +
                            " not over, waiting for " + std::to_string(nodes_.size()) + " nodes"});
  }
  unused_may_differ_ = true;
  next_deadline_ = EarliestDeadline();
  return Flush();
}

namespace {

// While a job trains its record is stored from time to time, and that of its attempt is not: the
// steps that a recovery loses are counted from it.
void RaiseLastStep(JobEntry& job) {
  const auto trained =
      std::find_if(job.attempts.rbegin(), job.attempts.rend(),
                   [](const AttemptRecord& attempt) { return attempt.resumed_step >= 0; });
  if (trained != job.attempts.rend())
    trained->last_step = std::max(trained->last_step, job.record.step);
}

}  // namespace

void ControllerCore::RestoreJob(JobEntry& job) {
  std::sort(
      job.attempts.begin(), job.attempts.end(),
      [](const AttemptRecord& a, const AttemptRecord& b) { return a.generation < b.generation; });
  std::sort(job.checkpoints.begin(), job.checkpoints.end(),
            [](const CheckpointRecord& a, const CheckpointRecord& b) {
              return std::tuple(a.step, a.generation) < std::tuple(b.step, b.generation);
            });
  CondenseOld(job.attempts);
  RaiseLastStep(job);
  Result<JobSpec> spec = ParseJobSpec(job.record.spec_yaml);
  if (spec.ok()) job.spec = std::move(*spec);
  job.ledger.Begin(job.record.usage, job.record.step, now_.mono, now_.unix_ms);
  if (job.over()) return;
  live_.insert(job.record.id);
  Changed(job);  // its time is booked to what it does from now on
  if (!spec.ok()) {
    return FinishJob(
        job, JobEvent::kFail,
        "this version does not accept its job file any more: " + spec.status().message());
  }
  job.waited = job.at_rest();
  if (!job.at_rest() && job.record.stop == StopKind::kNone) {
    job.time_limit_at = TimeLimitAt(job, now_);
  }
  if (!job.attempts.empty() && job.attempt().state != AttemptState::kEnded) {
    RestoreGang(job);
  } else if (job.record.stop != StopKind::kNone) {
    EndStopped(job);
  }
  reschedule_ = true;
}

void ControllerCore::RestoreGang(JobEntry& job) {
  AttemptRecord& attempt = job.attempt();
  const int per_node = job.spec.resources.ranks_per_node;
  Gang gang;
  for (const NodeName& name : attempt.nodes) {
    const NodeEntry* node = FindNode(name);
    // A lost node was given up before; its Hello, should it come, finds no member of that name.
    const bool lost = node == nullptr || node->record.state == NodeState::kLost;
    gang.nodes.push_back({name, attempt.state > AttemptState::kPreparing, lost});
    if (!lost) slots_.Take(name, job.record.id, attempt.generation, per_node);
  }
  for (const NodeName& name : attempt.spares) {
    gang.nodes.push_back({.name = name, .spare = true});
    slots_.Take(name, job.record.id, attempt.generation, per_node);
  }
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    if (checkpoint.state == CheckpointState::kCommitted &&
        checkpoint.generation < attempt.generation) {
      gang.committed_before = std::max(gang.committed_before, checkpoint.step);
    }
  }
  gang.first_step = job.record.state == JobState::kRunning;
  gang.abort_reason = attempt.cause;
  const TimePoint heard = now_.mono + options_.lease;  // by then every living node is back
  switch (attempt.state) {
    case AttemptState::kReserving:
    case AttemptState::kPreparing: gang.phase_deadline = heard + options_.prepare_deadline; break;
    case AttemptState::kLaunching: gang.phase_deadline = heard + options_.launch_deadline; break;
    case AttemptState::kRunning:
      if (!gang.first_step) gang.phase_deadline = heard + options_.form_deadline;
      if (job.record.stop != StopKind::kNone) {  // its state is being saved
        gang.stopping = true;
        gang.stop_may_take_longer = job.record.stop_by_unix_ms == 0;
        gang.abort_reason = job.record.reason;
        gang.stop_deadline = StopDeadline(job, now_, heard + options_.stop_grace);
      }
      break;
    case AttemptState::kAborting: {
      gang.aborted = TimePoint::min();
      if (job.record.stop == StopKind::kSuspend) {
        gang.stop_deadline = StopDeadline(job, now_, heard + options_.stop_grace);
      } else if (job.record.stop != StopKind::kNone) {
        gang.grace = options_.cancel_grace;
      }
      gang.keep = attempt.cause_kind != CauseKind::kFinished;
      gang.phase_deadline = heard + options_.abort_deadline + gang.grace;
      Failure failure;
      failure.kind = attempt.cause_kind;
      failure.retryable = attempt.retryable;
      failure.rank = attempt.failed_rank;
      failure.node = attempt.failed_node;
      failure.message = attempt.cause;
      failure.at = TimePoint::min();
      failure.log_tail = attempt.log_tail;
      gang.failures.push_back(std::move(failure));
      break;
    }
    case AttemptState::kEnded: break;
  }
  job.gang = std::move(gang);
  job.regrouped = now_.mono;  // if it was, nobody knows when
  WatchFromStart(job);
  // As it was decided before, by what is durable.
  job.gang->keep = job.gang->keep && MayKeep(job);
  if (attempt.state == AttemptState::kAborting) {
    MaybeEndAttempt(job);
  } else if (std::any_of(job.gang->nodes.begin(), job.gang->nodes.end(),
                         [](const GangNode& member) { return member.quiesced && !member.spare; })) {
    Failure failure;
    failure.kind = CauseKind::kNodeLost;
    failure.message = "a node was lost before the coordinator started again";
    failure.at = now_.mono;
    Fail(job, std::move(failure));
  }
}

}  // namespace muster
