// The cluster's users: a new version of them, and what the audit trail has of requests that never
// became events.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"

namespace muster::control {

void On(Transaction& tx, const UsersApplyRequested& request);
void On(Transaction& tx, const RequestNoted& request);

}  // namespace muster::control
