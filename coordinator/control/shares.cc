#include "coordinator/control/shares.h"

#include <cstddef>

#include "coordinator/control/job_facts.h"

namespace muster::control {
namespace {

int& WaitingAt(State& state, int place) {
  const auto at = static_cast<std::size_t>(place);
  if (state.waiting_of.size() <= at) state.waiting_of.resize(at + 1);
  return state.waiting_of[at];
}

// More leaves than that are mostly of jobs that are over.
std::size_t MostLeaves(const State& state) { return 1024 + 2 * state.live.size(); }

}  // namespace

int ShareOf(const State& state, const JobEntry& job) {
  return state.shares.Find(QueueOf(job), job.record.owner);
}

std::string UsageName(const State& state, const JobEntry& job) {
  return state.shares.by_user() ? ShareName(QueueOf(job), job.record.owner)
                                : std::string(QueueOf(job));
}

void AddShare(State& state, const JobEntry& job) {
  state.shares.Add(QueueOf(job), job.record.owner);
  if (state.shares.leaf_count() > MostLeaves(state)) RebuildShares(state);
}

// In the order of submission, which decides between users who have had the same.
void RebuildShares(State& state) {
  state.shares = ShareTree(state.queues, state.users.in_force());
  state.waiting_of.clear();
  if (!state.shares.by_user()) return;
  for (const auto& [order, id] : state.order) {
    JobEntry& job = state.jobs.at(id);
    job.waits_at = -1;
    if (job.over()) continue;
    state.shares.Add(QueueOf(job), job.record.owner);
    CountWaiting(state, job);
  }
}

void CountWaiting(State& state, JobEntry& job) {
  if (!state.shares.by_user()) return;
  const int place = job.pending() ? ShareOf(state, job) : -1;
  if (place == job.waits_at) return;
  if (job.waits_at >= 0) --WaitingAt(state, job.waits_at);
  if (place >= 0) ++WaitingAt(state, place);
  job.waits_at = place;
}

int WaitingOf(const State& state, std::string_view queue, std::string_view owner) {
  const int place = state.shares.Find(queue, owner);
  const auto at = static_cast<std::size_t>(place);
  return place < 0 || at >= state.waiting_of.size() ? 0 : state.waiting_of[at];
}

}  // namespace muster::control
