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
#include "coordinator/control/recalls.h"
#include "coordinator/control/silence.h"
#include "coordinator/control/stopping.h"
#include "coordinator/control/words.h"

namespace muster::control {
namespace {

// When a node that is silent from now on becomes suspect: rounded to a common interval, so that one
// Tick finds the hundreds of nodes that a dead switch silences.
TimePoint SuspectAt(const NodeEntry& node) {
  using Beat = std::chrono::duration<std::int64_t, std::ratio<1, 20>>;
  return TimePoint(std::chrono::ceil<Beat>((node.heard_at + kSuspectAfter).time_since_epoch()));
}

// Without repetition; of one in the order of ranks.
class LateNodes {
 public:
  void Add(const NodeName& name) {
    if (names_.empty() || names_.back() != name) names_.push_back(name);
  }
  NodeName first() const { return names_.empty() ? NodeName{} : names_.front(); }
  // If the job has trained before, the fault lies with the nodes.
  void RefuseTo(Transaction& tx, JobEntry& job) const {
    if (job.record.best_step == 0) return;
    for (const NodeName& name : names_) Refuse(tx, job, name, "it was not ready in time", false);
  }

 private:
  std::vector<NodeName> names_;
};

void FailLate(Transaction& tx, JobEntry& job, CauseKind kind, const LateNodes& late, int rank,
              std::string message) {
  late.RefuseTo(tx, job);
  Fail(tx, job,
       {.kind = kind,
        .rank = rank,
        .node = late.first(),
        .message = std::move(message),
        .at = tx.now.mono});
}

void PrepareExpired(Transaction& tx, JobEntry& job) {
  LateNodes late;
  for (const GangNode& node : job.gang->nodes) {
    if (!node.prepared && !node.spare) late.Add(node.name);
  }
  FailLate(tx, job, CauseKind::kPrepareTimeout, late, -1,
           "node " + late.first().value + " was not prepared within " +
               SecondsText(ToSeconds(kPrepareDeadline)));
}

void LaunchExpired(Transaction& tx, JobEntry& job) {
  LateNodes late;
  int first = -1;
  for (const RankRecord& rank : job.attempt().ranks) {
    if (rank.state != RankState::kPrepared) continue;
    late.Add(rank.node);
    if (first < 0) first = rank.rank;
  }
  FailLate(tx, job, CauseKind::kLaunchTimeout, late, first,
           "rank " + std::to_string(first) + " on " + late.first().value +
               " had no process within " + SecondsText(ToSeconds(kLaunchDeadline)));
}

// While no rank has found another, no node is to blame.
void FormExpired(Transaction& tx, JobEntry& job, const std::set<int>& formed) {
  LateNodes late;
  for (const RankRecord& rank : job.attempt().ranks) {
    if (!formed.empty() && !formed.contains(rank.rank)) late.Add(rank.node);
  }
  FailLate(tx, job, CauseKind::kFormTimeout, late, -1,
           std::to_string(formed.size()) + " of " + std::to_string(WorldSize(job)) +
               " ranks found each other within " +
               SecondsText(ToSeconds(tx.options.form_deadline)));
}

void TierExpired(Transaction& tx, JobEntry& job) {
  Fail(tx, job,
       {.kind = CauseKind::kSlowTier,
        .message = "with the processes of generation " +
                   std::to_string(job.attempt().generation - 1) +
                   " no step was finished in time; all processes restart",
        .at = tx.now.mono});
}

void AbortExpired(Transaction& tx, JobEntry& job) {
  for (GangNode& member : job.gang->nodes) {
    if (member.quiesced) continue;
    // The job must not wait for a node that was silent all that time.
    if (tx.node(member.name).suspect) tx.Exclude(job, member.name);
    Orphan(tx, job, member);
  }
  MaybeEndAttempt(tx, job);
}

// One at most: each of them ends the phase, or moves the deadline.
void ExpirePhase(Transaction& tx, JobEntry& job) {
  Gang& gang = *job.gang;
  if (const RankReports* reports = ReportsOf(gang); reports && tx.Expired(reports->tier_deadline))
    return TierExpired(tx, job);
  if (const auto* preparing = In<Preparing>(gang); preparing && tx.Expired(preparing->deadline))
    return PrepareExpired(tx, job);
  if (const auto* launching = In<Launching>(gang); launching && tx.Expired(launching->deadline))
    return LaunchExpired(tx, job);
  if (const auto* running = In<Running>(gang); running && tx.Expired(running->form_deadline))
    return FormExpired(tx, job, std::set<int>(running->ranks.formed));
  if (auto* aborting = In<Aborting>(gang)) {
    if (tx.Expired(aborting->save_deadline)) {
      aborting->save_deadline.reset();
      return MaybeEndAttempt(tx, job);
    }
    if (!tx.Expired(aborting->deadline)) return;
    aborting->deadline.reset();
    AbortExpired(tx, job);
  }
}

void ExpireGang(Transaction& tx, JobEntry& job) {
  if (tx.Expired(job.gang->store_exits_at)) tx.MarkAttempt(job);
  if (const GangStop* stop = StopOf(*job.gang); stop && tx.Expired(stop->deadline))
    StopExpired(tx, job);
  if (job.gang && tx.Expired(job.gang->fault_deadline)) FaultTimeoutOver(tx, job);
  if (job.gang) ExpirePhase(tx, job);
}

void ExpireJob(Transaction& tx, JobEntry& job) {
  if (tx.Expired(job.not_before)) {
    job.not_before.reset();
    tx.state.reschedule = tx.state.pass_is_urgent = true;
  }
  if (tx.Expired(job.promised_at) && !job.promise_is_due) {
    job.promise_is_due = true;
    tx.state.reschedule = true;
  }
  if (tx.Expired(job.begin_at)) {
    job.begin_at.reset();
    tx.state.reschedule = true;
    tx.Changed(job);
  }
  if (job.backoff.Expire(tx.now.mono)) {
    tx.state.reschedule = true;
    tx.Changed(job);
  }
  StopIfOutOfTime(tx, job);
  if (tx.Expired(job.grow_at)) {
    job.grow_at.reset();
    tx.state.reschedule = true;
  }
  if (job.gang) ExpireGang(tx, job);
}

std::optional<TimePoint> DeadlineOf(const Gang& gang) {
  std::optional<TimePoint> next = gang.store_exits_at;
  next = Earliest(next, gang.fault_deadline);
  if (const RankReports* reports = ReportsOf(gang)) next = Earliest(next, reports->tier_deadline);
  if (const auto* preparing = In<Preparing>(gang)) next = Earliest(next, preparing->deadline);
  if (const auto* launching = In<Launching>(gang)) next = Earliest(next, launching->deadline);
  if (const auto* running = In<Running>(gang)) next = Earliest(next, running->form_deadline);
  if (const GangStop* stop = StopOf(gang)) next = Earliest(next, stop->deadline);
  if (const auto* aborting = In<Aborting>(gang)) {
    next = Earliest(next, aborting->deadline);
    next = Earliest(next, aborting->save_deadline);
  }
  return next;
}

}  // namespace

std::optional<TimePoint> DeadlineOf(const JobEntry& job) {
  if (job.over()) return std::nullopt;
  std::optional<TimePoint> next = job.not_before;
  next = Earliest(next, job.begin_at);
  if (!job.promise_is_due) next = Earliest(next, job.promised_at);
  next = Earliest(next, job.time_limit_at);
  next = Earliest(next, job.backoff.NextExpiry());
  if (!job.gang) return next;
  next = Earliest(next, job.grow_at);
  next = Earliest(next, DeadlineOf(*job.gang));
  return next;
}

std::optional<TimePoint> DeadlineOf(const NodeEntry& node) {
  const std::optional<TimePoint> next = Earliest(node.check_at, node.forget_at);
  return node.session == 0 || node.suspect ? next : Earliest(next, SuspectAt(node));
}

void UpdateDeadlines(Transaction& tx) {
  State& state = tx.state;
  for (const JobId& id : tx.touched_jobs())
    state.job_deadlines.Set(id, DeadlineOf(state.jobs.at(id)));
  for (const NodeName& name : tx.touched_nodes()) {
    const std::optional<TimePoint> at = DeadlineOf(state.nodes.at(name));
    const std::optional<TimePoint> known = state.node_deadlines.Find(name);
    // A later deadline is found at the earlier one: thousands of heartbeats a second move theirs.
    if (!at || !known || *at < *known) state.node_deadlines.Set(name, at);
  }
}

std::optional<TimePoint> NextDeadline(const State& state) {
  std::optional<TimePoint> next = state.job_deadlines.Next();
  next = Earliest(next, state.node_deadlines.Next());
  for (const auto& [id, fault] : state.faults) next = Earliest(next, fault.deadline);
  next = Earliest(next, NextReadingDeadline(state));
  next = Earliest(next, NextArchiving(state));
  next = Earliest(next, NextRecall(state));
  next = Earliest(next, state.NextPass());
  return Earliest(next, state.reschedule_at);
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
  if (tx.Expired(tx.state.reschedule_at)) {
    tx.state.reschedule = true;
    tx.state.reschedule_at.reset();
  }
}

}  // namespace muster::control
