#include "coordinator/control/restore.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/job_spec/parse.h"
#include "coordinator/control/archiving.h"
#include "coordinator/control/attempt_end.h"
#include "coordinator/control/checkpoints.h"
#include "coordinator/control/clock_change.h"
#include "coordinator/control/drain.h"
#include "coordinator/control/gang_nodes.h"
#include "coordinator/control/giving_way.h"
#include "coordinator/control/job_end.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/preparing.h"
#include "coordinator/control/queue_days.h"
#include "coordinator/control/readings.h"
#include "coordinator/control/recalls.h"
#include "coordinator/control/shares.h"
#include "coordinator/control/silence.h"
#include "coordinator/queues/queue_file.h"

namespace muster::control {
namespace {

// While a job trains, its record is stored from time to time, and the record of its attempt is not.
// Steps that a recovery loses are counted from the attempt's record.
void RaiseLastStep(JobEntry& job) {
  if (AttemptRecord* trained = NewestTrained(job))
    trained->last_step = std::max(trained->last_step, job.record.step);
}

Running RestoredRunning(const Transaction& tx, const JobEntry& job, TimePoint heard) {
  Running running;
  if (job.record.state != JobState::kRunning)
    running.form_deadline = heard + tx.options.form_deadline;
  if (job.record.stop != StopKind::kNone) {  // its state is being saved
    running.stop = GangStop{.reason = job.record.reason,
                            .deadline = StopDeadline(job, tx.now, heard + kStopGrace),
                            .may_take_longer = job.record.stop_by_unix_ms == 0};
  }
  return running;
}

Aborting RestoredAborting(const Transaction& tx, const JobEntry& job, TimePoint heard) {
  Aborting aborting{.reason = job.attempts.back().cause};
  if (SetsAside(job.record.stop)) {
    aborting.save_deadline = StopDeadline(job, tx.now, heard + kStopGrace);
  } else if (job.record.stop != StopKind::kNone) {
    aborting.grace = kCancelGrace;
  }
  aborting.deadline = heard + kAbortDeadline + aborting.grace;
  return aborting;
}

Failure RestoredFailure(const AttemptRecord& attempt) {
  return {.kind = attempt.cause_kind,
          .retryable = attempt.retryable,
          .rank = attempt.failed_rank,
          .node = attempt.failed_node,
          .message = attempt.cause,
          .at = TimePoint::min(),
          .log_tail = attempt.log_tail};
}

void RestoreGang(Transaction& tx, JobEntry& job) {
  AttemptRecord& attempt = job.attempt();
  Gang gang;
  const auto restore = [&](const NodeName& name, bool spare) {
    const NodeEntry* node = tx.FindNode(name);
    // A lost node was given up before; its Hello, if it arrives, finds no member of that name.
    const bool lost = node == nullptr || node->record.state == NodeState::kLost;
    gang.nodes.Add({.name = name,
                    .prepared = !spare && attempt.state > AttemptState::kPreparing,
                    .quiesced = lost,
                    .spare = spare});
    if (!lost)
      tx.state.holds.Take(name, job.record.id, attempt.generation,
                          HeldAt(job, gang.nodes.size() - 1));
  };
  for (const NodeName& name : attempt.nodes) restore(name, /*spare=*/false);
  for (const NodeName& name : attempt.spares) restore(name, /*spare=*/true);
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    if (checkpoint.state == CheckpointState::kCommitted &&
        checkpoint.generation < attempt.generation) {
      gang.committed_before = std::max(gang.committed_before, checkpoint.step);
    }
  }
  gang.first_step = job.record.state == JobState::kRunning;
  const TimePoint heard = tx.now.mono + tx.options.lease;  // by then every living node is back
  switch (attempt.state) {
    case AttemptState::kReserving:
    case AttemptState::kPreparing:
      gang.phase = Preparing{.deadline = heard + kPrepareDeadline};
      break;
    case AttemptState::kLaunching:
      gang.phase = Launching{.deadline = heard + kLaunchDeadline};
      break;
    case AttemptState::kRunning: gang.phase = RestoredRunning(tx, job, heard); break;
    case AttemptState::kAborting:
      gang.phase = RestoredAborting(tx, job, heard);
      gang.failures.push_back(RestoredFailure(attempt));
      break;
    case AttemptState::kEnded: break;
  }
  job.gang = std::make_unique<Gang>(std::move(gang));
  tx.state.with_gang.emplace(job.record.id, &job);
  job.regrouped = tx.now.mono;  // if it was, the time is unknown
  WatchFromStart(tx, job);
  if (Aborting* aborting = In<Aborting>(*job.gang)) {
    // The decision is the earlier one, because it uses only what is durable.
    if (attempt.cause_kind != CauseKind::kFinished && MayKeep(job)) aborting->survivors.emplace();
    MaybeEndAttempt(tx, job);
  } else if (std::any_of(job.gang->nodes.begin(), job.gang->nodes.end(),
                         [](const GangNode& member) { return member.quiesced && !member.spare; })) {
    Fail(tx, job,
         {.kind = CauseKind::kNodeLost,
          .message = "a node was lost before the coordinator restarted",
          .at = tx.now.mono});
  }
}

void RestoreJob(Transaction& tx, JobEntry& job) {
  std::sort(
      job.attempts.begin(), job.attempts.end(),
      [](const AttemptRecord& a, const AttemptRecord& b) { return a.generation < b.generation; });
  std::ranges::sort(job.checkpoints, {}, CheckpointAge);
  CondenseOld(job.attempts);
  RaiseLastStep(job);
  Result<JobSpec> spec = ParseJobSpec(job.record.spec_yaml);
  if (spec.ok()) job.spec = std::move(*spec);
  if (job.record.time_limit_seconds == kTimeLimitOfJobFile)
    job.record.time_limit_seconds = job.spec.resources.time_limit_seconds;
  job.ledger.Begin(job.record.usage, job.record.step, tx.now.mono, tx.now.unix_ms);
  if (job.over()) return PlanArchiving(tx, job);
  tx.state.live.emplace(job.record.id, &job);
  AddShare(tx.state, job);
  tx.Changed(job);  // its time is booked to what it does from now on
  if (!spec.ok()) {
    return FinishJob(
        tx, job, JobEvent::kFail,
        "this version does not accept its job file any more: " + spec.status().message());
  }
  // What waits in the queue goes on waiting there, also if it had a gang before.
  job.waited = job.at_rest() || job.record.state == JobState::kQueued;
  job.wait_recorded = !job.record.reason.empty();
  if (!job.at_rest() && job.record.stop == StopKind::kNone) {
    job.time_limit_at = TimeLimitAt(job, tx.now);
    PlanEnd(job, tx.now);
    if (job.record.state == JobState::kQueued) job.begin_at = BeginAt(job, tx.now);
    if (const std::int64_t promised = job.record.promise.start_unix_ms; promised > 0) {
      job.promised_at = MonotonicOf(tx.now, promised);
      job.turn = job.promised_at;
      tx.state.planned.insert(job.record.id);
    }
  }
  if (!job.attempts.empty() && job.attempt().state != AttemptState::kEnded) {
    RestoreGang(tx, job);
  } else if (job.record.stop != StopKind::kNone) {
    EndStopped(tx, job);
  }
  tx.state.reschedule = true;
}

// In the order in which they are deleted, so that none is inserted in between.
void RestoreArchive(Transaction& tx, StoredState& stored) {
  tx.state.archived_time = stored.archived_time;
  std::sort(
      stored.archived.begin(), stored.archived.end(),
      [](const ArchivedJob& a, const ArchivedJob& b) { return a.ended_unix_ms < b.ended_unix_ms; });
  for (const ArchivedJob& job : stored.archived) {
    tx.state.archive.Add(job, DeletionTime(tx, job.ended_unix_ms));
    tx.state.next_order = std::max(tx.state.next_order, job.submit_order + 1);
  }
}

void RestoreAttempts(Transaction& tx, StoredState& stored) {
  for (AttemptRecord& attempt : stored.attempts) {
    const auto job = tx.state.jobs.find(attempt.job);
    if (job == tx.state.jobs.end()) continue;
    tx.state.usage_at_unix_ms =
        std::max({tx.state.usage_at_unix_ms, attempt.started_unix_ms, attempt.ended_unix_ms});
    job->second.attempts.push_back(std::move(attempt));
  }
  for (CheckpointRecord& checkpoint : stored.checkpoints) {
    const auto job = tx.state.jobs.find(checkpoint.job);
    if (job != tx.state.jobs.end()) job->second.checkpoints.push_back(std::move(checkpoint));
  }
}

void RestoreQueues(Transaction& tx, StoredState& stored) {
  auto queues = ParseStoredQueues(stored.queues.version, stored.queues.yaml);
  tx.state.queues = std::move(queues).value();
  tx.state.queues_yaml = std::move(stored.queues.yaml);
  tx.state.queue_usage = std::move(stored.queue_usage);
  RestoreDays(tx.state, std::move(stored.queue_days));
}

void RestoreUsers(State& state, StoredState& stored) {
  state.users = ParseStoredUsers(stored.users.version, stored.users.yaml).value();
  state.users_yaml = std::move(stored.users.yaml);
  state.audit = std::move(stored.audit);
  for (SecretRecord& record : stored.secrets) state.secrets[record.secret] = std::move(record);
}

}  // namespace

void Restore(Transaction& tx, StoredState stored) {
  tx.state.handled_at = tx.now.mono;
  std::sort(stored.events.begin(), stored.events.end(),
            [](const EventRecord& a, const EventRecord& b) { return a.seq < b.seq; });
  const std::size_t surplus = stored.events.size() > tx.options.max_events
                                  ? stored.events.size() - tx.options.max_events
                                  : 0;
  tx.state.events.assign(stored.events.begin() + static_cast<std::ptrdiff_t>(surplus),
                         stored.events.end());
  if (!tx.state.events.empty()) tx.state.next_seq = tx.state.events.back().seq + 1;

  RestoreQueues(tx, stored);
  RestoreUsers(tx.state, stored);
  RebuildShares(tx.state);
  for (NodeRecord& record : stored.nodes) {
    NodeEntry& node = tx.state.nodes[record.name];
    node.record = std::move(record);
    (void)ClaimDevices(tx.state, node, {});
    node.heard_at = tx.now.mono;
    node.unused.Begin(node.record.unused, 0, tx.now.mono, tx.now.unix_ms);
    if (node.record.state == NodeState::kLost) {
      PlanForgetting(tx, node);
      tx.state.node_deadlines.Set(node.record.name, node.forget_at);
      continue;
    }
    tx.Move(node, NodeEvent::kDisconnect);
    node.suspect = true;
    UpdateProbers(tx, node);
    node.check_at = tx.now.mono;
  }
  RestoreArchive(tx, stored);
  BeginRecalls(tx);
  std::sort(stored.jobs.begin(), stored.jobs.end(),
            [](const JobRecord& a, const JobRecord& b) { return a.submit_order < b.submit_order; });
  for (JobRecord& record : stored.jobs) {
    tx.state.order[record.submit_order] = record.id;
    tx.state.next_order = std::max(tx.state.next_order, record.submit_order + 1);
    RegisterOutput(tx, record);
    if (!record.key.empty()) tx.state.keys[SubmitKey(record)] = record.id;
    JobEntry& job = tx.state.jobs[record.id];
    job.record = std::move(record);
  }
  RestoreAttempts(tx, stored);
  FollowClockAtStart(tx);
  for (const auto& [order, id] : tx.state.order) {
    RestoreJob(tx, tx.job(id));
    tx.Index(tx.job(id));
    PlanScrubs(tx, tx.job(id));
  }
  for (auto& [name, node] : tx.state.nodes) {
    if (node.record.state == NodeState::kDraining) DrainJobs(tx, node);
  }
  for (const auto& [id, job] : State::Some(tx.state.live)) GiveWayAgain(tx, tx.job(id));
  if (!tx.state.jobs.empty() || !tx.state.nodes.empty()) {
    tx.RecordClusterEvent({"coordinator_restarted", Severity::kInfo,
                           "coordinator restarted: " + std::to_string(tx.state.jobs.size()) +
                               " jobs known, " + std::to_string(tx.state.live.size()) +
                               " not over, " + std::to_string(tx.state.archive.jobs().size()) +
                               " archived, waiting for " + std::to_string(tx.state.nodes.size()) +
                               " nodes"});
  }
  for (const auto& [name, node] : tx.state.nodes) tx.state.unused_may_differ.insert(name);
}

}  // namespace muster::control
