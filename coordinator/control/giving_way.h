// Gangs that give way to a job that waits: what that costs, the order to do it, what is kept for
// the claimant until it starts.
//
// The decision is durable in the victim's record (ReclaimRecord), what the claimant gets is its
// promise. A victim that goes back to the queue is stopped as for a suspension; one that shrinks
// stops at a step boundary and forms again with fewer nodes, as after a drain.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <vector>

#include "coordinator/control/transaction.h"
#include "coordinator/scheduler/running_gang.h"

namespace muster::control {

// It saves its state and stops for a claimant.
bool IsGivingWay(const JobEntry& job);
// Whether the job gave up nodes for a claimant that still waits for its promised start: until then
// it asks for no more.
bool KeepsNodesAway(const State& state, const JobEntry& job);
// Nothing is kept for claimants that do not wait any more.
void DropOldClaims(Transaction& tx);

// What it would lose now if it gave way, and what it takes to save and load its state:
// rank-seconds.
double VictimCost(const JobEntry& job, const Now& now);
// How the job's gang would give way.
void DescribeVictim(const State& state, const Now& now, const JobEntry& job, RunningGang& gang);

// In the order of the scheduler's decisions.
void GiveWay(Transaction& tx, const std::vector<Reclaim>& reclaims);
// Jobs that run on these lent spares, or would go on there, stop at once: the claimant waits for
// that. Repeated with every pass until they are gone, also after a restart of the coordinator.
void GiveSparesBack(Transaction& tx, const JobId& claimant, const std::vector<NodeName>& nodes);
// After a restart of the coordinator: a gang that was to shrink goes on stopping.
void GiveWayAgain(Transaction& tx, JobEntry& job);

}  // namespace muster::control
