#include "coordinator/control/queue_usage.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/shares.h"
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

double StoredSeconds(const State& state, const std::string& name, std::int64_t at) {
  const auto usage = state.queue_usage.find(name);
  if (usage == state.queue_usage.end()) return 0;
  return std::exp2(usage->second - HalfLives(at, state.queues.half_life_seconds));
}

void Store(Transaction& tx, const std::string& name, double log_usage) {
  tx.state.queue_usage[name] = log_usage;
  tx.out.store.push_back(PutQueueUsage{name, log_usage});
}

void Drop(Transaction& tx, const std::string& name) {
  tx.state.queue_usage.erase(name);
  tx.out.store.push_back(DeleteQueueUsage{name});
}

void AddSeconds(Transaction& tx, const std::string& name, double seconds) {
  const std::int64_t now = tx.now.unix_ms;
  Store(tx, name,
        std::log2(StoredSeconds(tx.state, name, now) + seconds) +
            HalfLives(now, tx.state.queues.half_life_seconds));
}

// What a user has had is kept while it weighs something, and the user is one or has jobs there.
bool IsKept(const State& state, const std::string& name, std::int64_t now) {
  constexpr double kNothing = 1;  // second of a GPU
  if (!IsOfUser(name) || state.shares.Find(QueueOfShare(name), UserOfShare(name)) >= 0) return true;
  return state.users.Find(UserOfShare(name)) != nullptr &&
         StoredSeconds(state, name, now) >= kNothing;
}

// The queue itself had it from now on.
void GiveToQueue(Transaction& tx, const std::string& name) {
  AddSeconds(tx, std::string(QueueOfShare(name)), StoredSeconds(tx.state, name, tx.now.unix_ms));
  Drop(tx, name);
}

void GiveUnkeptToQueues(Transaction& tx) {
  const std::map<std::string, double> before = tx.state.queue_usage;
  for (const auto& [name, log_usage] : before)
    if (!IsKept(tx.state, name, tx.now.unix_ms)) GiveToQueue(tx, name);
}

}  // namespace

void NoteGangBegins(Transaction& tx) { tx.state.usage_at_unix_ms = tx.now.unix_ms; }

void BookUsage(Transaction& tx, const JobEntry& job) {
  constexpr std::size_t kFew = 1024;
  State& state = tx.state;
  const std::int64_t now = tx.now.unix_ms;
  state.usage_at_unix_ms = now;
  const double seconds =
      CostOf(AmountsOf(job)) *
      SecondsAt(now, job.attempts.back().started_unix_ms, now, state.queues.half_life_seconds);
  if (seconds <= 0) return;
  AddSeconds(tx, UsageName(state, job), seconds);
  if (state.queue_usage.size() < state.sift_usage_at) return;
  GiveUnkeptToQueues(tx);
  state.sift_usage_at = std::max(kFew, 2 * state.queue_usage.size());
}

void RebookUsage(Transaction& tx, std::int64_t old_half_life_seconds) {
  State& state = tx.state;
  const std::int64_t now = tx.now.unix_ms;
  const double change =
      HalfLives(now, state.queues.half_life_seconds) - HalfLives(now, old_half_life_seconds);
  const std::map<std::string, double> before = state.queue_usage;
  for (const auto& [name, log_usage] : before) {
    if (state.queues.Find(QueueOfShare(name)) < 0)
      Drop(tx, name);
    else if (change != 0)
      Store(tx, name, log_usage + change);
  }
  GiveUnkeptToQueues(tx);
  state.usage_at_unix_ms = now;
}

void MoveUsage(Transaction& tx, std::int64_t by_ms) {
  const std::map<std::string, double> before = tx.state.queue_usage;
  for (const auto& [name, log_usage] : before)
    Store(tx, name, log_usage + HalfLives(by_ms, tx.state.queues.half_life_seconds));
  tx.state.usage_at_unix_ms += by_ms;
}

std::vector<double> UsageOfQueues(const State& state) {
  const std::int64_t at = state.usage_at_unix_ms;
  const std::int64_t half_life = state.queues.half_life_seconds;
  std::vector<double> usage(state.shares.tree().queues.size());
  for (const auto& [name, log_usage] : state.queue_usage)
    if (const int place = state.shares.PlaceOfUsage(name); place >= 0)
      usage[static_cast<std::size_t>(place)] += std::exp2(log_usage - HalfLives(at, half_life));
  for (const auto& [id, entry] : state.with_gang) {
    const JobEntry& job = *entry;
    const int place = ShareOf(state, job);
    if (place < 0) continue;
    const std::int64_t start = job.attempts.back().started_unix_ms;
    std::int64_t ahead = kChargedAhead.count();
    if (const std::int64_t limit = job.record.time_limit_seconds; limit > 0)
      ahead = std::min(ahead, limit);
    usage[static_cast<std::size_t>(place)] +=
        CostOf(AmountsOf(job)) *
        SecondsAt(at, start, std::max(at, start + ahead * 1000), half_life);
  }
  return usage;
}

}  // namespace muster::control
