// Starts a coordinator from the state that an earlier one stored.
//
// Nothing is sent from here: every node is suspect until its Hello. node_sessions.cc then decides
// what a live attempt needs, from the processes that really run.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"

namespace muster::control {

// Fills the state of `tx`, which is empty, from the store.
void Restore(Transaction& tx, StoredState stored);

}  // namespace muster::control
