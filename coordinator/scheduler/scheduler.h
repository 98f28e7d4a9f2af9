// Plan: which waiting jobs get a gang of slots now, when the others start, and why they wait.
//
// Order: jobs that ran until a fault first, because a recovery is not queueing; then higher
// classes; within a class first what stays within its queue's guarantee, then what borrows above
// it. Queues take turns by their shares (queue_loads.h); within a queue a higher priority goes
// first, then the earlier submission. A gang is placed whole or not at all, within the ceilings of
// its queue.
//
// Backfill is conservative. Each of the first kPlannedJobs jobs that cannot start now gets the
// earliest time at which its nodes are free by the time limits of what runs, and exactly these
// devices are reserved from then on: a later job starts only if it leaves that alone. The first
// such time is a promise, which is kept in later passes and broken only for the causes in
// DelayCause. Where no end is known, the first job that waits collects devices as they become free,
// as many as it needs.
//
// Reclaim. A job that could start sooner if gangs gave way that may be its victims (victims.h) is
// promised the time by which they have stopped. What they leave is reserved for it as any promise
// is, so that only what goes before it anyway starts there. A job has no further victims while
// gangs give way to it; recoveries and jobs that only want spares have none.
//
// Shared spares: jobs that say so may have a node as a spare together. What is held there is the
// largest of what they need, once, and counts for no queue. One of them that recovers takes it; the
// others' spare is gone then. Meanwhile it is lent: a preemptible gang starts there too. If one of
// its nodes is needed, the job that recovers waits for it (WaitingJob::clears), whatever the gang's
// age, and keeps its survivors meanwhile.
//
// A job keeps the nodes it had before, in the same rank order, if they have room. Spares are given
// out in the same order: nodes held beside a gang, for it alone. Among equally good nodes, a gang
// takes those that leave no failure domain with more than half of its nodes (failure_domains.h);
// spares are taken from domains with as few of its nodes as possible. Each node of a gang, and each
// spare, comes with its devices by id (node_fit.h).
//
// Pure: a snapshot in, a plan out; the time is part of the snapshot. Any thread.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "coordinator/queues/queue_tree.h"
#include "coordinator/scheduler/gang_request.h"
#include "coordinator/scheduler/node_fit.h"
#include "coordinator/scheduler/running_gang.h"
#include "coordinator/scheduler/wait_reason.h"

namespace muster {

// Jobs with a start that is planned ahead.
inline constexpr int kPlannedJobs = 128;

struct SchedulerSnapshot {
  TimePoint now;
  std::vector<GangRequest> requests;  // any order
  std::vector<NodeCapacity> nodes;    // that may be used; any order, names distinct
  std::vector<RunningGang> running;
  const QueueTree* queues = nullptr;  // outlives the snapshot; nullptr: one queue for all
  // Cost-seconds of each queue itself; those before the newest start or end of a gang count less,
  // missing ones are 0. Time that passes without an event changes no order.
  std::vector<double> usage;
};

struct GangPlacement {
  JobId job;
  std::vector<NodeName> nodes;  // by node rank
  std::vector<NodeName> spares;
  std::vector<DeviceMask> node_devices;  // of each of `nodes`
  std::vector<DeviceMask> spare_devices;
  std::vector<NodeName> lent;  // those of `nodes` that are lent spares
};

// Why a job starts later than it was promised.
enum class DelayCause {
  kNone,
  kNodes,      // a node of it is lost, drained or broken
  kRecovery,   // a gang that had a fault needs its nodes
  kClass,      // a job of a higher class goes first
  kGuarantee,  // a queue below its guarantee goes first
  kLimits,     // a gang runs longer than planned, or a time limit, a ceiling or a queue was changed
};
std::string_view Name(DelayCause cause);  // none, nodes, recovery, class, guarantee, limits

struct WaitingJob {
  JobId job;
  WaitReason reason;
  std::optional<Promise> promise;  // the old one if it holds
  DelayCause delayed = DelayCause::kNone;
  std::vector<NodeName> collects;  // nodes where it collects devices; empty: it does not
  // Lent spares that it takes as soon as nothing runs there; empty: it waits for none.
  std::vector<NodeName> clears;
};

struct SchedulePlan {
  std::vector<GangPlacement> placements;  // in the order they were decided
  std::vector<WaitingJob> waiting;        // next to be placed first
  std::vector<Reclaim> reclaims;          // in the order they were decided
  // A job waits for gangs that may give way from then on; kNever: none does.
  TimePoint again_at = kNever;
};

SchedulePlan Plan(const SchedulerSnapshot& snapshot);
// The same without reasons, which are most of a long pass.
SchedulePlan PlanWithoutReasons(const SchedulerSnapshot& snapshot);
// The same with this request instead of the job's own, if the snapshot has one, and a reason for
// that job alone.
SchedulePlan PlanWith(const SchedulerSnapshot& snapshot, const GangRequest& request);

// --- probes: jobs that a pass is asked about. What Plan would decide for each follows from what
// the pass has left at its turn, for many variants of it at once, since nothing before its turn
// depends on what it asks for. ---

class MatchTable;
class QueueLoads;
class PlannedNodes;

// A probe's turn. Valid during the call.
struct Turn {
  const GangRequest& probe;
  // The phase takes only what stays within a guarantee, by these loads.
  bool entitled = false;
  const QueueLoads& guaranteed;
  const QueueLoads& loads;
  const PlannedNodes& nodes;
  MatchTable& matches;
  // A gang that starts now may delay promises: later phases have some, or some do not hold anyway.
  bool endangers_promises = false;
};
// Whether the probe needs no turn in a later phase of its class.
using AtTurn = std::function<bool(const Turn&)>;

// Makes a pass in which the probes take nothing, and calls `at_turn` at their turns until each is
// answered. Probes are of one job, which has no other turn; they do not recover and have no
// promise.
void AskAtTurns(const SchedulerSnapshot& snapshot, const std::vector<GangRequest>& probes,
                const AtTurn& at_turn);

// Why the node could never hold a part of such a gang, even if it were empty; nothing if it could.
std::optional<NearestMiss> MissOf(const GangRequest& request, const NodeCapacity& node);
// Whether `a` misses it by less than `b`.
bool IsNearer(const NearestMiss& a, const NearestMiss& b);

}  // namespace muster
