// Which waiting job gets which nodes now: has the scheduler make a plan, and starts the jobs that
// it places.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"

namespace muster::control {

void Schedule(Transaction& tx);

}  // namespace muster::control
