// What the gangs of each queue, and of each user of it, had, for fair shares.
//
// A second of a gang counts its cost (scheduler/queue_loads.h) times 2^(t / half-life) at the time
// t, so that what was before counts less and time passing changes no order. The store has the
// binary logarithm of each queue's sum for gangs that have ended; those that run are added from
// their start on, which is durable with their attempts. A user's sum is kept while the user is in
// the user file and the sum has not decayed to nothing, or jobs are there; then it is the queue's.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"
#include "coordinator/scheduler/scheduler.h"

namespace muster::control {

// A gang of the job starts now.
void NoteGangBegins(Transaction& tx);
// The job's newest attempt ends now, and still has what it had.
void BookUsage(Transaction& tx, const JobEntry& job);
// The tree has another half-life than before, and may lack queues; users may be gone.
void RebookUsage(Transaction& tx, std::int64_t old_half_life_seconds);

// The clock by which it was booked was set.
void MoveUsage(Transaction& tx, std::int64_t by_ms);

// What each place of the tree of shares itself had, as it counts at the newest start or end of a
// gang.
std::vector<double> UsageOfQueues(const State& state);

}  // namespace muster::control
