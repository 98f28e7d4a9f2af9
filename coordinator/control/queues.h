// The cluster's queues: what each has, and a new version of them.
//
// Free functions over the controller's State and the event under way (transaction.h); private to
// coordinator/control; one thread.
#pragma once

#include "coordinator/control/transaction.h"
#include "coordinator/control/views.h"

namespace muster::control {

QueuesView QueueViews(const State& state);

void On(Transaction& tx, const QueuesApplyRequested& request);

}  // namespace muster::control
