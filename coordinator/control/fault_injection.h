// Faults that users order, to rehearse them on their own cluster.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"

namespace muster::control {

void On(Transaction& tx, const InjectFaultRequested& request);
void Handle(Transaction& tx, const NodeName& node, const FaultDone& message);
// A node that executes its own death may do so before it answers.
void AnswerFaultsOf(Transaction& tx, const NodeName& node);

void ExpireFaults(Transaction& tx);

}  // namespace muster::control
