#include "coordinator/control/clock_change.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "common/job_spec/job_times.h"
#include "coordinator/control/queue_usage.h"

namespace muster::control {
namespace {

using std::chrono::milliseconds;

// What is less is no matter for times that are measured in minutes.
constexpr std::int64_t kLeastMs = 10'000;

std::int64_t OffsetMs(const Now& now) {
  return now.unix_ms -
         std::chrono::duration_cast<milliseconds>(now.mono.time_since_epoch()).count();
}

bool IsLive(const AttemptRecord& attempt) { return attempt.state != AttemptState::kEnded; }

// Also at a start, when State::live is not there yet.
std::vector<JobId> NotOver(const State& state) {
  std::vector<JobId> ids;
  for (const auto& [id, job] : state.jobs)
    if (!job.over()) ids.push_back(id);
  return ids;
}

void MoveTimes(Transaction& tx, JobEntry& job, std::int64_t by_ms) {
  JobRecord& record = job.record;
  for (std::int64_t* time :
       {&record.started_unix_ms, &record.progress_unix_ms, &record.suspended_unix_ms,
        &record.stop_by_unix_ms, &record.victim_unix_ms, &record.promise.start_unix_ms,
        &record.reclaim.by_unix_ms}) {
    if (*time == 0) continue;
    *time += by_ms;
    tx.Mark(job);
  }
  for (AttemptRecord& attempt : job.attempts) {
    if (!IsLive(attempt)) continue;
    attempt.started_unix_ms += by_ms;
    tx.Mark(attempt);
  }
}

void MoveTimes(Transaction& tx, std::int64_t by_ms) {
  for (const JobId& id : NotOver(tx.state)) MoveTimes(tx, tx.job(id), by_ms);
  for (auto& [name, node] : tx.state.nodes) {
    if (node.record.drain_by_unix_ms == 0) continue;
    node.record.drain_by_unix_ms += by_ms;
    tx.Mark(node);
  }
  MoveUsage(tx, by_ms);
  tx.RecordClusterEvent({"clock_set", Severity::kWarning,
                         std::string("the clock of the day was set ") +
                             (by_ms < 0 ? "back" : "ahead") + " by " +
                             SpanText((std::abs(by_ms) + 500) / 1000) +
                             "; what jobs were promised and have used moves along"});
}

}  // namespace

void FollowClock(Transaction& tx) {
  const std::int64_t offset_ms = OffsetMs(tx.now);
  const std::int64_t by_ms = offset_ms - std::exchange(tx.state.clock_offset_ms, offset_ms);
  if (std::abs(by_ms) >= kLeastMs) MoveTimes(tx, by_ms);
}

void FollowClockAtStart(Transaction& tx) {
  tx.state.clock_offset_ms = OffsetMs(tx.now);
  // A change that was followed has left an event and booked the time of all gangs: none of these is
  // later than now unless the clock was set back since.
  std::int64_t newest = tx.state.events.empty() ? 0 : tx.state.events.back().unix_ms;
  for (const auto& [id, job] : tx.state.jobs)
    if (std::ranges::any_of(job.attempts, IsLive))
      newest = std::max(newest, job.record.usage.until_unix_ms);
  const std::int64_t by_ms = tx.now.unix_ms - newest;
  if (by_ms <= -kLeastMs) {
    MoveTimes(tx, by_ms);
    for (const JobId& id : NotOver(tx.state)) tx.job(id).record.usage.until_unix_ms += by_ms;
  }
  // That of attempts which have ended stays.
  tx.state.usage_at_unix_ms = std::min(tx.state.usage_at_unix_ms, tx.now.unix_ms);
}

}  // namespace muster::control
