// The clock of the day is set: times that are stored by it, and still decide something, move along.
//
// Decisions use the monotonic clock. What outlives a coordinator is stored by the clock of the day:
// since when a job has used its time limit, when it was promised a start, by when a victim has
// stopped, what queues had. So that such a time means the same after the clock was set, it is moved
// by as much. Times that only say when something was, such as those of events, stay; so does a
// begin, which a user has named by that clock.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"

namespace muster::control {

// Whether the clock was set since the last event.
void FollowClock(Transaction& tx);
// The same at a start, by what is stored: that it was set ahead meanwhile cannot be seen there.
void FollowClockAtStart(Transaction& tx);

}  // namespace muster::control
