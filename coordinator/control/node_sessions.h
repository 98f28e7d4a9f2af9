// Nodes connect and disconnect; and what each Hello changes.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"

namespace muster::control {

void On(Transaction& tx, const WorkerHello& event);
void On(Transaction& tx, const WorkerStreamClosed& event);
void Handle(Transaction& tx, const NodeName& node, const Released& message);

}  // namespace muster::control
