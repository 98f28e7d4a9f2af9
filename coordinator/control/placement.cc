#include "coordinator/control/placement.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "common/base/wall_time.h"
#include "coordinator/control/attempt_end.h"
#include "coordinator/control/gang_nodes.h"
#include "coordinator/control/gang_orders.h"
#include "coordinator/control/giving_way.h"
#include "coordinator/control/job_end.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/preparing.h"
#include "coordinator/control/scheduler_snapshot.h"
#include "coordinator/control/stopping.h"
#include "coordinator/control/words.h"
#include "coordinator/scheduler/scheduler.h"

namespace muster::control {
namespace {

constexpr Duration kReadyBeforeGrowth = std::chrono::seconds(3);
constexpr Duration kBetweenRegroupings = std::chrono::seconds(60);

// The nodes are not reserved yet: a gang takes them when it is formed again.
void GiveMoreNodes(Transaction& tx, JobEntry& job, const GangPlacement& placement) {
  const std::vector<NodeName>& nodes = placement.spares;
  if (static_cast<int>(job.attempt().nodes.size()) >= job.spec.resources.nodes) {
    return AddSpares(tx, job, placement);
  }
  TimePoint due = job.regrouped ? *job.regrouped + kBetweenRegroupings : TimePoint::min();
  for (const NodeName& name : nodes) {
    due = std::max(due, tx.node(name).ready_at + kReadyBeforeGrowth);
  }
  if (due > tx.now.mono) {
    job.grow_at = due;
    return;
  }
  job.regrouped = tx.now.mono;
  const std::string reason = "going on with " +
                             std::to_string(job.attempt().nodes.size() + nodes.size()) +
                             " nodes, which have room again";
  // Without snapshots all steps since the last checkpoint would be lost.
  if (job.spec.train && job.spec.train->snapshot.every == 0) {
    return StopGang(tx, job, reason, std::nullopt);
  }
  EndOnPurpose(tx, job, CauseKind::kRegrouped, reason);
}

std::vector<std::vector<std::string>> DeviceIdsOf(const Transaction& tx, const Promise& promise) {
  std::vector<std::vector<std::string>> devices;
  for (std::size_t i = 0; i < promise.nodes.size(); ++i)
    devices.push_back(DeviceIds(tx.node(promise.nodes[i]), promise.devices[i]));
  return devices;
}

void RecordPromise(Transaction& tx, JobEntry& job, const Promise& promise) {
  tx.state.planned.insert(job.record.id);
  job.promised_at = promise.start;
  job.promise_is_due = false;
  if (!job.turn) job.turn = promise.start;
  job.record.promise = {.start_unix_ms = UnixMillisOf(tx.now, promise.start),
                        .nodes = promise.nodes,
                        .devices = DeviceIdsOf(tx, promise)};
}

// Nodes that come and go change the reasons of all jobs that wait at once. Once in the timeline and
// in the store is enough: a coordinator that starts works them out again.
void SetWaitReason(Transaction& tx, JobEntry& job, const WaitReason& reason) {
  if (job.wait == reason) return;
  job.wait = reason;
  tx.Changed(job);
  if (std::exchange(job.wait_recorded, true)) return;
  job.record.reason = WaitingText(reason, job.backoff);
  tx.Mark(job);
  tx.RecordEvent(job, {"queued", Severity::kInfo, "waiting: " + job.record.reason});
}

std::string_view Why(DelayCause cause) {
  switch (cause) {
    case DelayCause::kNone: break;
    case DelayCause::kNodes: return "nodes that it was to have are lost, drained or broken";
    case DelayCause::kRecovery: return "a gang that had a fault needs its nodes";
    case DelayCause::kClass: return "a job of a higher class goes first";
    case DelayCause::kGuarantee: return "a queue below its guarantee goes first";
    case DelayCause::kLimits:
      return "a gang runs longer than planned, or a limit or a queue was changed";
  }
  return "its nodes are not needed any more";
}

void SetPromise(Transaction& tx, JobEntry& job, const WaitingJob& waiting) {
  const bool had = job.promised_at.has_value();
  const std::optional<Promise>& promise = waiting.promise;
  if (!had && !promise) return;
  const PromiseRecord before = job.record.promise;
  if (!promise) {
    DropPromise(tx.state, job);
  } else if (!had || *job.promised_at != promise->start || before.nodes != promise->nodes ||
             DeviceIdsOf(tx, *promise) != before.devices) {
    RecordPromise(tx, job, *promise);
  } else {
    return;
  }
  tx.Mark(job);
  const std::string now = UtcTime(job.record.promise.start_unix_ms);
  // An earlier start is shown with the job; an event for each would be many.
  if (!had)
    tx.RecordEvent(job, {"promised", Severity::kInfo, "starts at " + now + " at the latest"});
  if (!had || waiting.delayed == DelayCause::kNone) return;
  const std::string what = promise ? "starts at " + now + " at the latest, later than promised"
                                   : "has no planned start any more";
  const auto forced = tx.state.forced_delays.find(job.record.id);
  const bool by_force =
      waiting.delayed == DelayCause::kLimits && forced != tx.state.forced_delays.end();
  tx.RecordEvent(job, {"delayed", Severity::kWarning,
                       what + " (" + UtcTime(before.start_unix_ms) + "): " +
                           (by_force ? forced->second : std::string(Why(waiting.delayed)))});
}

// Nothing changes for it. One that had a gang may still have processes to give up.
bool WaitsAsBefore(const JobEntry& job, const WaitingJob& waiting) {
  return job.attempts.empty() && job.wait == waiting.reason && !job.promised_at &&
         !waiting.promise && job.collecting == waiting.collects;
}

// Something that was kept for it is not any more.
bool PlanMoves(const JobEntry& job, const WaitingJob& waiting) {
  const bool promise_moves =
      job.promised_at && (!waiting.promise || waiting.promise->start != *job.promised_at ||
                          waiting.promise->nodes != job.record.promise.nodes);
  return promise_moves || (!job.collecting.empty() && job.collecting != waiting.collects);
}

// How long a pass took, about (schedule_bench).
Duration CostOf(const SchedulerSnapshot& snapshot, const SchedulePlan& plan) {
  using std::chrono::nanoseconds;
  const auto nodes = static_cast<std::int64_t>(snapshot.nodes.size());
  const auto requests = static_cast<std::int64_t>(snapshot.requests.size());
  const auto running = static_cast<std::int64_t>(snapshot.running.size());
  const auto queues = static_cast<std::int64_t>(snapshot.queues->queues.size());
  const auto victims = static_cast<std::int64_t>(plan.reclaims.size());
  const std::int64_t planned = std::min<std::int64_t>(requests, kPlannedJobs);
  return nanoseconds(5000) * requests + nanoseconds(2000) * nodes + nanoseconds(3000) * running +
         nanoseconds(1000) * queues + nanoseconds(30) * planned * nodes +
         nanoseconds(100) * victims * running;
}

Duration DistanceAfter(Duration cost) {
  constexpr Duration kCheap = std::chrono::microseconds(100);
  return cost <= kCheap ? Duration::zero() : 4 * cost;
}

// Others wait for what is free by now: parts of a gang that ends may be, and a gang may give way.
bool IsMoreThanArrivals(const Transaction& tx) {
  return tx.Expired(tx.state.reschedule_at) || !tx.state.aborting.empty();
}

// Jobs that may not be placed any more lose their plan.
void ForgetPlans(Transaction& tx) {
  for (const JobId& id : std::set<JobId>(tx.state.planned)) {
    if (MayBePlaced(std::as_const(tx).job(id))) continue;
    JobEntry& job = tx.job(id);
    if (job.promised_at || !job.collecting.empty()) {
      job.turn.reset();
      tx.Mark(job);
    }
    DropPromise(tx.state, job);
  }
}

}  // namespace

void ScheduleSoon(Transaction& tx, const JobId& job) {
  tx.state.arrived.insert(job);
  if (tx.Expired(tx.state.NextPass())) Schedule(tx);
}

void Schedule(Transaction& tx) {
  State& state = tx.state;
  if (!state.reschedule && IsMoreThanArrivals(tx)) {
    state.reschedule = true;
    if (!tx.Expired(state.NextPass())) return;
  }
  ++state.changes;
  ForgetPlans(tx);
  DropOldClaims(tx);
  const bool whole = std::exchange(state.reschedule, false);
  const SchedulerSnapshot snapshot =
      whole ? SnapshotOf(tx.state, tx.now) : SnapshotOfArrived(tx.state, tx.now);
  if (whole) state.reschedule_at.reset();
  state.arrived.clear();
  state.pass_is_urgent = false;
  const SchedulePlan plan = snapshot.requests.empty() ? SchedulePlan() : Plan(snapshot);
  (whole ? state.next_whole_pass : state.next_small_pass) =
      tx.now.mono + DistanceAfter(CostOf(snapshot, plan));
  if (snapshot.requests.empty()) return;
  bool plans_move = false;
  if (tx.options.on_pass) tx.options.on_pass(snapshot, plan, tx.now.unix_ms);
  for (const GangPlacement& placement : plan.placements) {
    JobEntry& job = tx.job(placement.job);
    plans_move |= job.promised_at && job.record.promise.nodes != placement.nodes;
    DropPromise(tx.state, job);
    job.turn.reset();
    job.gang ? GiveMoreNodes(tx, job, placement) : StartAttempt(tx, job, placement);
  }
  for (const WaitingJob& waiting : plan.waiting) {
    if (WaitsAsBefore(std::as_const(tx).job(waiting.job), waiting)) continue;
    JobEntry& job = tx.job(waiting.job);
    if (!waiting.clears.empty()) continue;  // it goes on in a moment, with its survivors
    // Waits for one of its nodes that may still return after a restart of the coordinator.
    if (!FormerNodeSuspect(tx.state, job)) {
      const bool waits_again = !job.attempts.empty();
      if (waits_again != std::exchange(job.waited, waits_again)) tx.Changed(job);
      EndParked(tx, job);
    }
    SetWaitReason(tx, job, waiting.reason);
    plans_move |= PlanMoves(job, waiting);
    SetPromise(tx, job, waiting);
    job.collecting = waiting.collects;
    if (job.promised_at || !job.collecting.empty() || !job.attempts.empty())
      state.planned.insert(waiting.job);
    else
      state.planned.erase(waiting.job);
  }
  state.forced_delays.clear();
  GiveWay(tx, plan.reclaims);
  for (const WaitingJob& waiting : plan.waiting) GiveSparesBack(tx, waiting.job, waiting.clears);
  if (plan.again_at != kNever) state.reschedule_at = Earliest(state.reschedule_at, plan.again_at);
  // What a small pass moved may leave room for jobs that it did not look at.
  state.reschedule |= !whole && plans_move;
}

}  // namespace muster::control
