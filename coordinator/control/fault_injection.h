// Faults that users order, to rehearse them on their own cluster.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"

namespace muster::control {

void On(Transaction& tx, const InjectFaultRequested& request);
void Handle(Transaction& tx, const NodeName& node, const FaultDone& message);
// The node's stream has ended. A fault may end a node or its worker before the answer is sent.
void AnswerFaultsOf(Transaction& tx, const NodeName& node);

void ExpireFaults(Transaction& tx);

}  // namespace muster::control
