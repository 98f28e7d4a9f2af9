#include "coordinator/control/queue_usage.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/scheduler/queue_loads.h"

namespace muster::control {
namespace {

// Half-lives since the epoch.
double HalfLives(std::int64_t unix_ms, std::int64_t half_life_seconds) {
  return static_cast<double>(unix_ms) / 1000 / static_cast<double>(half_life_seconds);
}

// What a gang of cost 1 had in [from, to), as seconds at the time `at`.
double SecondsAt(std::int64_t at, std::int64_t from, std::int64_t to, std::int64_t half_life) {
  if (to <= from) return 0;
  const auto weight = [&](std::int64_t time) {
    return std::exp2(HalfLives(time, half_life) - HalfLives(at, half_life));
  };
  return (weight(to) - weight(from)) * static_cast<double>(half_life) / std::log(2.0);
}

double StoredSeconds(const State& state, const std::string& queue, std::int64_t at) {
  const auto usage = state.queue_usage.find(queue);
  if (usage == state.queue_usage.end()) return 0;
  return std::exp2(usage->second - HalfLives(at, state.queues.half_life_seconds));
}

void Store(Transaction& tx, const std::string& queue, double log_usage) {
  tx.state.queue_usage[queue] = log_usage;
  tx.out.store.push_back(PutQueueUsage{queue, log_usage});
}

}  // namespace

void NoteGangBegins(Transaction& tx) { tx.state.usage_at_unix_ms = tx.now.unix_ms; }

void BookUsage(Transaction& tx, const JobEntry& job) {
  const std::int64_t now = tx.now.unix_ms;
  const std::int64_t half_life = tx.state.queues.half_life_seconds;
  const std::string queue(QueueOf(job));
  tx.state.usage_at_unix_ms = now;
  const double seconds =
      CostOf(AmountsOf(job)) * SecondsAt(now, job.attempts.back().started_unix_ms, now, half_life);
  if (seconds <= 0) return;
  Store(tx, queue,
        std::log2(StoredSeconds(tx.state, queue, now) + seconds) + HalfLives(now, half_life));
}

void RebookUsage(Transaction& tx, std::int64_t old_half_life_seconds) {
  State& state = tx.state;
  const std::int64_t now = tx.now.unix_ms;
  const double change =
      HalfLives(now, state.queues.half_life_seconds) - HalfLives(now, old_half_life_seconds);
  const std::map<std::string, double> before = state.queue_usage;
  for (const auto& [queue, log_usage] : before) {
    if (state.queues.Find(queue) < 0) {
      state.queue_usage.erase(queue);
      tx.out.store.push_back(DeleteQueueUsage{queue});
    } else if (change != 0) {
      Store(tx, queue, log_usage + change);
    }
  }
  state.usage_at_unix_ms = now;
}

void MoveUsage(Transaction& tx, std::int64_t by_ms) {
  const std::map<std::string, double> before = tx.state.queue_usage;
  for (const auto& [queue, log_usage] : before)
    Store(tx, queue, log_usage + HalfLives(by_ms, tx.state.queues.half_life_seconds));
  tx.state.usage_at_unix_ms += by_ms;
}

std::vector<double> UsageOfQueues(const State& state) {
  const std::int64_t at = state.usage_at_unix_ms;
  const std::int64_t half_life = state.queues.half_life_seconds;
  std::vector<double> usage;
  std::map<std::string_view, std::size_t> places;
  for (const QueueSpec& queue : state.queues.queues) {
    places.emplace(queue.name, usage.size());
    usage.push_back(StoredSeconds(state, queue.name, at));
  }
  for (const auto& [id, entry] : state.with_gang) {
    const JobEntry& job = *entry;
    const auto place = places.find(QueueOf(job));
    if (place == places.end()) continue;
    const std::int64_t start = job.attempts.back().started_unix_ms;
    std::int64_t ahead = kChargedAhead.count();
    if (const std::int64_t limit = job.record.time_limit_seconds; limit > 0)
      ahead = std::min(ahead, limit);
    usage[place->second] += CostOf(AmountsOf(job)) *
                            SecondsAt(at, start, std::max(at, start + ahead * 1000), half_life);
  }
  return usage;
}

}  // namespace muster::control
