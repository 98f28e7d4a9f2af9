// The usage of jobs and slots, booked to their ledgers after every event.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"

namespace muster::control {

// What the job's time is booked to.
TimeUse TimeUseOf(const JobEntry& job);

// The attempt whose ranks its time is booked to; 0: none.
Generation BookedAttempt(const JobEntry& job);

void AccrueTime(Transaction& tx, JobEntry& job);
// Books the slots without a rank of the nodes where their number may have changed.
void BookUnused(Transaction& tx);

}  // namespace muster::control
