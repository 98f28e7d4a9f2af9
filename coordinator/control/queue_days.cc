#include "coordinator/control/queue_days.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "coordinator/control/job_facts.h"

namespace muster::control {
namespace {

constexpr std::int64_t kDayMillis = 86'400'000;

std::int64_t DayOf(std::int64_t unix_ms) {
  return std::max<std::int64_t>(kOlderDays + 1, unix_ms / kDayMillis);
}

// What ranks spent in slots.
UsedMicros Spent(const RankMicros& before, const RankMicros& after) {
  UsedMicros spent;
  for (int i = 0; i < kTimeStateCount; ++i) {
    const auto state = static_cast<TimeState>(i);
    const std::int64_t micros = Figure(after, state) - Figure(before, state);
    if (state == TimeState::kStep) spent.productive += micros;
    if (state != TimeState::kStep && state != TimeState::kQueue) spent.lost += micros;
  }
  return spent;
}

UsedMicros Times(const UsedMicros& used, double factor) {
  const auto times = [factor](std::int64_t micros) {
    return static_cast<std::int64_t>(static_cast<double>(micros) * factor);
  };
  return {times(used.productive), times(used.lost)};
}

// Calls `add(day, part)` for each day of [from, to); the parts sum to the whole. A clock that was
// set back in between leaves one day, that of the end.
template <typename Add>
void Divide(UsedMicros spent, std::int64_t from, std::int64_t to, Add add) {
  constexpr std::int64_t kMost = static_cast<std::int64_t>(kKeptDays) * kDayMillis;
  for (from = std::clamp(from, to - kMost, to); DayOf(from) < DayOf(to);) {
    const std::int64_t midnight = (DayOf(from) + 1) * kDayMillis;
    const UsedMicros part =
        Times(spent, static_cast<double>(midnight - from) / static_cast<double>(to - from));
    add(DayOf(from), part);
    spent += {-part.productive, -part.lost};
    from = midnight;
  }
  add(DayOf(to), spent);
}

// To a QueueDayRecord or a QueueTotal.
template <typename Used>
void AddTo(Used& to, const JobEntry& job, const UsedMicros& used) {
  to.slots += used;
  const int gpus = job.spec.resources.per_node().devices.per_rank;
  to.gpus += {used.productive * gpus, used.lost * gpus};
}

QueueDayRecord& AddTo(QueueDays& days, const JobEntry& job, std::int64_t day, bool by_user,
                      const UsedMicros& used) {
  const QueueDayRecord empty{.queue = std::string(QueueOf(job)),
                             .day = day,
                             .user = by_user ? job.record.owner : std::string()};
  QueueDayRecord& record = days[day].emplace(KeyOf(empty), empty).first->second;
  AddTo(record, job, used);
  return record;
}

// Calls `add(job, spent)` for each job that has had something since it was booked.
template <typename Add>
void ForUnbooked(const State& state, Now now, Add add) {
  for (const auto& [id, live] : state.live) {
    const JobEntry& job = *live;
    const GoodputUsage& stored = job.record.usage;
    const UsedMicros since = Spent(stored.micros, job.ledger.StoredAt(stored, now.mono).micros);
    if (since != UsedMicros{}) add(job, since);
  }
}

void SumOldest(Transaction& tx) {
  QueueDays& days = tx.state.queue_days;
  auto& older = days[kOlderDays];
  const auto drop = [&tx](const QueueDayRecord& record) {
    tx.out.store.push_back(DeleteQueueDay{KeyOf(record), record.day});
  };
  const auto oldest = std::next(days.begin());
  for (const auto& [key, record] : oldest->second) {
    drop(record);
    QueueDayRecord& sum = older[record.queue];
    sum.queue = record.queue;
    sum.gpus += record.gpus;
    sum.slots += record.slots;
    tx.Mark(sum);
  }
  days.erase(oldest);
  std::erase_if(older, [&](const auto& each) {
    const auto has_it = [&each](const auto& day) {
      return std::ranges::any_of(
          day.second, [&each](const auto& record) { return record.second.queue == each.first; });
    };
    if (tx.state.queues.Find(each.first) >= 0 ||
        std::any_of(std::next(days.begin()), days.end(), has_it))
      return false;
    drop(each.second);
    tx.state.queue_totals.erase(each.first);
    return true;
  });
}

}  // namespace

void BookDays(Transaction& tx, const JobEntry& job, const GoodputUsage& before) {
  const GoodputUsage& after = job.record.usage;
  const UsedMicros spent = Spent(before.micros, after.micros);
  if (spent == UsedMicros{}) return;
  QueueDays& days = tx.state.queue_days;
  AddTo(tx.state.queue_totals[std::string(QueueOf(job))], job, spent);
  Divide(spent, before.until_unix_ms, after.until_unix_ms,
         [&](std::int64_t day, const UsedMicros& part) {
           const bool by_user = tx.state.shares.by_user();
           if (part != UsedMicros{}) tx.Mark(AddTo(days, job, day, by_user, part));
         });
  while (days.size() - days.count(kOlderDays) > kKeptDays) SumOldest(tx);
}

QueueDays QueueDaysNow(const State& state, Now now) {
  QueueDays days = state.queue_days;
  ForUnbooked(state, now, [&](const JobEntry& job, const UsedMicros& since) {
    Divide(since, job.record.usage.until_unix_ms, now.unix_ms,
           [&](std::int64_t day, const UsedMicros& part) {
             AddTo(days, job, day, state.shares.by_user(), part);
           });
  });
  return days;
}

QueueTotals QueueTotalsNow(const State& state, Now now) {
  QueueTotals totals = state.queue_totals;
  ForUnbooked(state, now, [&](const JobEntry& job, const UsedMicros& since) {
    AddTo(totals[std::string(QueueOf(job))], job, since);
  });
  return totals;
}

void RestoreDays(State& state, std::vector<QueueDayRecord> records) {
  for (QueueDayRecord& record : records) {
    QueueTotal& total = state.queue_totals[record.queue];
    total.gpus += record.gpus;
    total.slots += record.slots;
    std::string key = KeyOf(record);
    state.queue_days[record.day][std::move(key)] = std::move(record);
  }
}

}  // namespace muster::control
