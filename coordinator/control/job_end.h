// The end of a job, final or until it is resumed: what it leaves and what is released.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <string>

#include "coordinator/control/transaction.h"

namespace muster::control {

// Ends the job's parked processes, which no gang takes over.
void EndParked(Transaction& tx, JobEntry& job);

// Releases the nodes that its running gang does not have.
void ReleaseFormerNodes(Transaction& tx, JobEntry& job);

// Ends the job for good, or suspends it.
void FinishJob(Transaction& tx, JobEntry& job, JobEvent event, std::string reason);

// Ends the job as `record.stop` requires; does nothing without a stop.
void EndStopped(Transaction& tx, JobEntry& job);

}  // namespace muster::control
