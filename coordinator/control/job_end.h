// The end of a job, final or until it is resumed: what it leaves and what is released.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <string>

#include "coordinator/control/transaction.h"

namespace muster::control {

// No gang takes over the job's parked processes.
void EndParked(Transaction& tx, JobEntry& job);

// A running gang has all of its state on its own nodes.
void ReleaseFormerNodes(Transaction& tx, JobEntry& job);

// Finally, or to suspend it.
void FinishJob(Transaction& tx, JobEntry& job, JobEvent event, std::string reason);

// The end that `record.stop` asks for, if any.
void EndStopped(Transaction& tx, JobEntry& job);

}  // namespace muster::control
