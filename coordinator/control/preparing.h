// From a placement to launched ranks: an attempt is made, its nodes are prepared, its ranks
// launched.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <vector>

#include "coordinator/control/transaction.h"
#include "coordinator/scheduler/scheduler.h"

namespace muster::control {

void StartAttempt(Transaction& tx, JobEntry& job, const GangPlacement& placement);
void AddSpares(Transaction& tx, JobEntry& job, const GangPlacement& placement);
void Handle(Transaction& tx, const NodeName& node, const Prepared& message);
// The detectors begin with the newest attempt.
void WatchFromStart(Transaction& tx, JobEntry& job);

}  // namespace muster::control
