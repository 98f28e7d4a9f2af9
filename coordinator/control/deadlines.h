// Time that passes: when the next Tick is due, and what it brings.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <optional>

#include "coordinator/control/transaction.h"

namespace muster::control {

std::optional<TimePoint> EarliestDeadline(const Transaction& tx);
void On(Transaction& tx, const Tick&);

}  // namespace muster::control
