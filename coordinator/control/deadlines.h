// Deadlines: when the next Tick is due, and what expires then.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <optional>

#include "coordinator/control/transaction.h"

namespace muster::control {

// When its next deadline expires, as it stands now; empty: never.
std::optional<TimePoint> DeadlineOf(const JobEntry& job);
std::optional<TimePoint> DeadlineOf(const NodeEntry& node);

// Updates the deadlines of the jobs and nodes that the transaction touched. Only
// Transaction::Finish follows it.
void UpdateDeadlines(Transaction& tx);
// When a Tick is due.
std::optional<TimePoint> NextDeadline(const State& state);
void On(Transaction& tx, const Tick&);

}  // namespace muster::control
