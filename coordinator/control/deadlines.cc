#include "coordinator/control/deadlines.h"

#include <algorithm>
#include <chrono>
#include <ratio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/control/archiving.h"
#include "coordinator/control/attempt_end.h"
#include "coordinator/control/fault_injection.h"
#include "coordinator/control/gang_nodes.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/readings.h"
#include "coordinator/control/silence.h"
#include "coordinator/control/stopping.h"
#include "coordinator/control/words.h"

namespace muster::control {
namespace {

// When a node that is silent from now on becomes suspect: rounded to a common interval, so that one
// Tick finds the hundreds of nodes that a dead switch silences.
TimePoint SuspectAt(const NodeEntry& node, Duration suspect_after) {
  using Beat = std::chrono::duration<std::int64_t, std::ratio<1, 20>>;
  return TimePoint(std::chrono::ceil<Beat>((node.heard_at + suspect_after).time_since_epoch()));
}

// The gang's nodes that delay its phase. None while no rank has found another.
std::vector<NodeName> LateNodes(const JobEntry& job) {
  const AttemptRecord& attempt = job.attempts.back();
  const Gang& gang = *job.gang;
  std::vector<NodeName> late;
  const auto add = [&late](const NodeName& name) {
    if (late.empty() || late.back() != name) late.push_back(name);
  };
  switch (attempt.state) {
    case AttemptState::kReserving:
    case AttemptState::kPreparing:
      for (const GangNode& node : gang.nodes) {
        if (!node.prepared && !node.spare) add(node.name);
      }
      break;
    case AttemptState::kLaunching:
      for (const RankRecord& rank : attempt.ranks) {
        if (rank.state == RankState::kPrepared) add(rank.node);
      }
      break;
    case AttemptState::kRunning:
      for (const RankRecord& rank : attempt.ranks) {
        if (!gang.formed.empty() && !gang.formed.contains(rank.rank)) add(rank.node);
      }
      break;
    case AttemptState::kAborting:
      for (const GangNode& node : gang.nodes) {
        if (!node.quiesced) add(node.name);
      }
      break;
    case AttemptState::kEnded: break;
  }
  return late;
}

void TierExpired(Transaction& tx, JobEntry& job) {
  job.gang->tier_deadline.reset();
  Failure failure;
  failure.kind = CauseKind::kSlowTier;
  failure.at = tx.now.mono;
  failure.message = "with the processes of generation " +
                    std::to_string(job.attempt().generation - 1) +
                    " no step was finished in time; all processes restart";
  Fail(tx, job, std::move(failure));
}

void PhaseExpired(Transaction& tx, JobEntry& job) {
  Gang& gang = *job.gang;
  gang.phase_deadline.reset();
  const AttemptState state = job.attempt().state;
  const std::vector<NodeName> late = LateNodes(job);
  if (state == AttemptState::kAborting) {
    for (const NodeName& name : late) {
      // The job must not wait for a node that was silent all that time.
      if (tx.node(name).suspect) tx.Exclude(job, name);
      Orphan(tx, job, *FindMember(job, name));
    }
    return MaybeEndAttempt(tx, job);
  }
  Failure failure;
  failure.at = tx.now.mono;
  if (!late.empty()) failure.node = late.front();
  if (state == AttemptState::kRunning) {
    failure.kind = CauseKind::kFormTimeout;
    failure.message = std::to_string(gang.formed.size()) + " of " + std::to_string(WorldSize(job)) +
                      " ranks found each other within " +
                      SecondsText(ToSeconds(tx.options.form_deadline));
  } else if (state == AttemptState::kLaunching) {
    failure.kind = CauseKind::kLaunchTimeout;
    const std::vector<RankRecord>& ranks = job.attempt().ranks;
    const auto first = std::find_if(ranks.begin(), ranks.end(), [](const RankRecord& rank) {
      return rank.state == RankState::kPrepared;
    });
    if (first != ranks.end()) failure.rank = first->rank;
    failure.message = "rank " + std::to_string(failure.rank) + " on " + failure.node.value +
                      " had no process within " +
                      SecondsText(ToSeconds(tx.options.launch_deadline));
  } else {
    failure.kind = CauseKind::kPrepareTimeout;
    failure.message = "node " + failure.node.value + " was not prepared within " +
                      SecondsText(ToSeconds(tx.options.prepare_deadline));
  }
  // If the job has trained before, the fault lies with the nodes.
  if (job.record.best_step > 0) {
    for (const NodeName& node : late) Refuse(tx, job, node, "it was not ready in time", false);
  }
  Fail(tx, job, std::move(failure));
}

void ExpireJob(Transaction& tx, JobEntry& job) {
  if (tx.Expired(job.not_before)) {
    job.not_before.reset();
    tx.state.reschedule = true;
  }
  tx.state.reschedule |= job.refusals.Expire(tx.now.mono);
  if (!job.over() && tx.Expired(job.time_limit_at)) {
    job.time_limit_at.reset();
    StopJob(tx, job, StopKind::kTimeLimit,
            "its time limit of " + SecondsText(double(job.spec.resources.time_limit_seconds)) +
                " is reached");
  }
  if (tx.Expired(job.grow_at)) {
    job.grow_at.reset();
    tx.state.reschedule = true;
  }
  if (job.gang && tx.Expired(job.gang->store_exits_at)) tx.MarkAttempt(job);
  if (job.gang && tx.Expired(job.gang->stop_deadline)) StopExpired(tx, job);
  if (job.gang && tx.Expired(job.gang->fault_deadline)) FaultTimeoutOver(tx, job);
  if (job.gang && tx.Expired(job.gang->tier_deadline)) TierExpired(tx, job);
  if (job.gang && tx.Expired(job.gang->phase_deadline)) PhaseExpired(tx, job);
}

}  // namespace

std::optional<TimePoint> DeadlineOf(const JobEntry& job) {
  if (job.over()) return std::nullopt;
  std::optional<TimePoint> next;
  const auto consider = [&next](const std::optional<TimePoint>& when) {
    if (when && (!next || *when < *next)) next = when;
  };
  consider(job.not_before);
  consider(job.time_limit_at);
  consider(job.refusals.NextExpiry());
  if (!job.gang) return next;
  consider(job.grow_at);
  consider(job.gang->store_exits_at);
  consider(job.gang->stop_deadline);
  consider(job.gang->phase_deadline);
  consider(job.gang->fault_deadline);
  consider(job.gang->tier_deadline);
  return next;
}

std::optional<TimePoint> DeadlineOf(const NodeEntry& node, Duration suspect_after) {
  std::optional<TimePoint> next = node.check_at;
  if (node.forget_at && (!next || *node.forget_at < *next)) next = node.forget_at;
  if (node.session == 0 || node.suspect) return next;
  const TimePoint suspect_at = SuspectAt(node, suspect_after);
  return next ? std::min(*next, suspect_at) : suspect_at;
}

void UpdateDeadlines(Transaction& tx) {
  State& state = tx.state;
  for (const JobId& id : tx.touched_jobs())
    state.job_deadlines.Set(id, DeadlineOf(state.jobs.at(id)));
  for (const NodeName& name : tx.touched_nodes()) {
    const std::optional<TimePoint> at = DeadlineOf(state.nodes.at(name), tx.options.suspect_after);
    const std::optional<TimePoint> known = state.node_deadlines.Find(name);
    // A later deadline is found at the earlier one: thousands of heartbeats a second move theirs.
    if (!at || !known || *at < *known) state.node_deadlines.Set(name, at);
  }
}

std::optional<TimePoint> NextDeadline(const State& state) {
  std::optional<TimePoint> next;
  const auto consider = [&next](const std::optional<TimePoint>& when) {
    if (when && (!next || *when < *next)) next = when;
  };
  consider(state.job_deadlines.Next());
  consider(state.node_deadlines.Next());
  for (const auto& [id, fault] : state.faults) consider(fault.deadline);
  consider(NextReadingDeadline(state));
  consider(NextArchiving(state));
  return next;
}

void On(Transaction& tx, const Tick&) {
  while (const std::optional<NodeName> name = tx.state.node_deadlines.PopDue(tx.now.mono)) {
    NodeEntry& node = tx.node(*name);
    CheckSilence(tx, node);
    ForgetIfDue(tx, node);
  }
  ExpireFaults(tx);
  while (const std::optional<JobId> id = tx.state.job_deadlines.PopDue(tx.now.mono))
    ExpireJob(tx, tx.job(*id));
  ArchiveDue(tx);
}

}  // namespace muster::control
