// Which waiting job gets which nodes now: has the scheduler make a plan, and starts the jobs that
// it places.
//
// A pass costs more the more jobs wait. Where only new jobs have come since the last one, a small
// pass considers them and those that have a plan: what could not start then cannot now. Where a
// pass takes milliseconds, passes keep a distance, in which requests gather, so that they take a
// fifth of the time at most. Recoveries do not wait for it.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"

namespace muster::control {

// Makes a pass now; where more than arrivals calls for one, when that may be.
void Schedule(Transaction& tx);
// The job has come to wait: makes a pass now if that may be, or asks for one.
void ScheduleSoon(Transaction& tx, const JobId& job);

}  // namespace muster::control
