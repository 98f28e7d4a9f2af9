// The time of the ranks of each queue, and of each user of it, by day, for `muster usage`: what
// jobs book to their ledgers (coordinator/goodput) is added to the day and the queue in the same
// commit, so that no restart counts it twice or loses it.
//
// The newest kKeptDays days with use are kept apart, of all queues; older ones are summed, of all
// users, since totals never fall. A queue that is gone is forgotten with the last of its days. Days
// are UTC.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <cstddef>
#include <vector>

#include "coordinator/control/transaction.h"

namespace muster::control {

inline constexpr std::size_t kKeptDays = 400;

// The job's usage was `before`, and is now that of its record. What an interval over midnight had
// is divided by time.
void BookDays(Transaction& tx, const JobEntry& job, const GoodputUsage& before);

// What is booked, and what has passed since then as far as a restart would know it.
QueueDays QueueDaysNow(const State& state, Now now);
QueueTotals QueueTotalsNow(const State& state, Now now);

// What the store had.
void RestoreDays(State& state, std::vector<QueueDayRecord> records);

}  // namespace muster::control
