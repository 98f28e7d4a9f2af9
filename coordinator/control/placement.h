// Which waiting job gets which nodes now: has the scheduler make a plan, and starts the jobs that
// it places.
//
// A pass costs more the more jobs wait. Where it takes milliseconds, passes keep a distance, in
// which requests gather, so that they take a fifth of the time at most. Recoveries do not wait for
// it.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"

namespace muster::control {

// Makes a pass now.
void Schedule(Transaction& tx);
// Makes a pass now, if one may be made, or else asks for one.
void ScheduleSoon(Transaction& tx);
// Whether one was asked for and may be made.
bool PassIsDue(const Transaction& tx);

}  // namespace muster::control
