// The cluster's queues: which one a job is in, what each has, and a new version of them.
//
// Free functions over the controller's State and the event under way (transaction.h); private to
// coordinator/control; one thread.
#pragma once

#include <string_view>

#include "coordinator/control/transaction.h"
#include "coordinator/control/views.h"

namespace muster::control {

// The names of the job's queue and class. A live job's are in the tree: none is removed while a job
// that is not over has it.
std::string_view QueueOf(const JobEntry& job);
std::string_view ClassOf(const JobEntry& job);

// What the job has: its gang with spares, and processes that are parked or leaving.
Amounts AmountsOf(const State& state, const JobEntry& job);

QueuesView QueueViews(const State& state);

void On(Transaction& tx, const QueuesApplyRequested& request);

}  // namespace muster::control
