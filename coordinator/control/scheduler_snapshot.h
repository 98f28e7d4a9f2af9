// The scheduler's view of the State: what waits, what is free, what runs until when.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"
#include "coordinator/scheduler/scheduler.h"

namespace muster::control {

// Both point into the State: used before the next event.
SchedulerSnapshot SnapshotOf(const Transaction& tx);
// Without waiting jobs that have neither arrived since the last pass nor a plan.
SchedulerSnapshot SnapshotOfArrived(const Transaction& tx);

// A node of its last gang is silent, and may be back.
bool FormerNodeSuspect(const Transaction& tx, const JobEntry& job);

}  // namespace muster::control
