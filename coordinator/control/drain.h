// Nodes that are taken out of use: drained by a request or by their own notice, or quarantined.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"

namespace muster::control {

// Moves the jobs off the node.
void DrainJobs(Transaction& tx, NodeEntry& node);

void CompleteDrains(Transaction& tx);
void On(Transaction& tx, const DrainRequested& request);
void On(Transaction& tx, const UndrainRequested& request);
void Handle(Transaction& tx, const NodeName& name, const NodeNotice& notice);

}  // namespace muster::control
