// Plan: which waiting jobs get a gang of slots now, when the others start, and why they wait.
//
// Order: jobs that ran until a fault first, because a recovery is not queueing; then higher
// classes; within a class first what stays within its queue's guarantee, then what borrows above
// it. Queues take turns by their shares (queue_loads.h); within a queue a higher priority goes
// first, then the earlier submission. A gang is placed whole or not at all, within the ceilings of
// its queue. A queue may have a leaf for each of its users (queues/share_tree.h): they take turns,
// and have ceilings, as queues do.
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

#include <optional>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "coordinator/queues/queue_tree.h"
#include "coordinator/scheduler/gang_request.h"
#include "coordinator/scheduler/node_fit.h"
#include "coordinator/scheduler/pass_record.h"
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
  bool is_behind_planned = false;  // kPlannedJobs have a start before it, so that it has none
};

struct SchedulePlan {
  std::vector<GangPlacement> placements;  // in the order they were decided
  std::vector<WaitingJob> waiting;        // next to be placed first
  std::vector<Reclaim> reclaims;          // in the order they were decided
  // A job waits for gangs that may give way from then on; kNever: none does.
  TimePoint again_at = kNever;
};

SchedulePlan Plan(const SchedulerSnapshot& snapshot);
// The same of the record's snapshot, which others may follow then.
SchedulePlan Plan(PassRecord& record);
// As far as it concerns jobs that were promised a start, and `with`, which is considered instead of
// the job's own request if the snapshot has one; nullptr: none is. Has no other reason than that
// job's.
SchedulePlan PlanPromises(const SchedulerSnapshot& snapshot, const GangRequest* with);

struct AddedJob {
  SchedulePlan plan;   // of that job alone
  bool takes = false;  // nodes, now or later
  // Jobs that were promised a start may have another one with it.
  bool endangers_promises = false;
};
// What Plan decides about a job that the snapshot has not, without a pass; nothing: the record does
// not say.
std::optional<AddedJob> PlanAdded(const PassRecord& record, const GangRequest& request);

// Calls `at_turn` at the probes' turns until each is answered, as in a pass in which they take
// nothing. They are of one job, which has no other turn; `own` is the snapshot's request of it,
// nullptr: it has none. They do not recover and have no promise. Whether the record was enough;
// else it makes a pass for those that are not answered.
bool AskAtTurns(const PassRecord& record, const GangRequest* own,
                const std::vector<GangRequest>& probes, const AtTurn& at_turn);

// What a pass decides at a turn about a job that it makes gangs give way to.
struct Reclaiming {
  std::vector<Reclaim> reclaims;
  TimePoint start = kNever;  // at the latest
};
// Nothing: it makes none. Nodes and loads are those of the turn, and then as if the gangs had given
// way; without a result they are as before.
std::optional<Reclaiming> ReclaimAt(const Turn& turn, const GangRequest& request, TimePoint now,
                                    PlannedNodes& nodes, QueueLoads& loads);

// Why the node could never hold a part of such a gang, even if it were empty; nothing if it could.
std::optional<NearestMiss> MissOf(const GangRequest& request, const NodeCapacity& node);
// Whether `a` misses it by less than `b`.
bool IsNearer(const NearestMiss& a, const NearestMiss& b);

}  // namespace muster
