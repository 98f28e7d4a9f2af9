// A coordinator that starts on what an earlier one left.
//
// Nothing is sent from here: every node is suspect until its Hello, and what is to be done for a
// live attempt is decided then (node_sessions.cc), from what really runs.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"

namespace muster::control {

// Fills the state of `t`, which is empty, from the store.
void Restore(Transaction& tx, StoredState stored);

}  // namespace muster::control
