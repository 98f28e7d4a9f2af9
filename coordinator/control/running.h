// What the ranks of a live attempt report: started, formed, resumed, a step done, progress, exits.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"

namespace muster::control {

void Handle(Transaction& tx, const NodeName& node, const RankStarted& message);
void Handle(Transaction& tx, const NodeName& node, const RankExited& message);
void Handle(Transaction& tx, const NodeName& node, const TrainerReport& message);
void Handle(Transaction& tx, const NodeName& node, const Progress& message);

}  // namespace muster::control
