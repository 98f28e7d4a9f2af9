// Which waiting job gets which nodes now: asks the scheduler, and starts what it places.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"

namespace muster::control {

void Schedule(Transaction& tx);

}  // namespace muster::control
