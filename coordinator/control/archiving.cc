#include "coordinator/control/archiving.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace muster::control {
namespace {

constexpr int kAtOnce = 256;
constexpr Duration kPause = std::chrono::milliseconds(10);  // before the next ones
// How long until a job or node that was in use is checked again, and a job that was being read.
constexpr Duration kRetry = std::chrono::hours(1);
constexpr Duration kReadRetry = std::chrono::minutes(1);

// When `retain` has passed since `since`, by the clock of the day; not before now, and not after a
// whole `retain`, however that clock was set.
TimePoint After(const Transaction& tx, std::int64_t since_unix_ms, Duration retain) {
  const Duration age = std::chrono::milliseconds(tx.now.unix_ms - since_unix_ms);
  return tx.now.mono + std::clamp(retain - age, Duration::zero(), retain);
}

// An order to read its checkpoints is outstanding, or a client waits for one.
bool IsRead(const JobEntry& job) {
  return job.scrub->id != 0 || !job.scrub->requests.empty() ||
         !job.verification->directory.empty() || !job.verification->waiting.empty();
}

// A node that is there still has processes of the job.
bool InUse(const Transaction& tx, const JobEntry& job) {
  const auto may_host = [&tx](const NodeName& name) {
    const NodeEntry* node = tx.FindNode(name);
    return node != nullptr && node->record.state != NodeState::kLost;
  };
  return std::ranges::any_of(job.record.pending_release, may_host) ||
         std::ranges::any_of(tx.state.holds.Nodes(job.record.id), may_host);
}

bool InUse(const Transaction& tx, const NodeEntry& node) {
  const NodeName& name = node.record.name;
  return !node.record.leaked.empty() || !node.record.drain_reason.empty() ||
         tx.state.jobs_of.Has(name) ||
         std::ranges::any_of(tx.state.holds.Holders(name),
                             [&tx](const JobId& id) { return tx.FindJob(id) != nullptr; });
}

}  // namespace

void PlanArchiving(Transaction& tx, const JobEntry& job) {
  if (tx.options.retain <= Duration::zero()) return;
  tx.state.archive_times.Set(job.record.id, After(tx, job.record.ended_unix_ms, tx.options.retain));
}

void PlanForgetting(Transaction& tx, NodeEntry& node) {
  if (tx.options.lost_node_retain <= Duration::zero()) return;
  node.forget_at = After(tx, node.record.last_seen_unix_ms, tx.options.lost_node_retain);
}

TimePoint DeletionTime(const Transaction& tx, std::int64_t ended_unix_ms) {
  const Duration retain = tx.options.archive_retain;
  return retain > Duration::zero() ? After(tx, ended_unix_ms, retain) : TimePoint::max();
}

std::optional<TimePoint> NextArchiving(const State& state) {
  const std::optional<TimePoint> next = Earliest(state.archive_times.Next(), state.archive.Next());
  return next ? std::optional(std::max(*next, state.archive_again_at)) : next;
}

void ArchiveDue(Transaction& tx) {
  const std::optional<TimePoint> due = NextArchiving(tx.state);
  if (!tx.Expired(due)) return;
  tx.state.archive_again_at = tx.now.mono + kPause;
  // What is archived now may have its turn before the others.
  if (tx.state.recalls.next_at) tx.state.recalls.next_at = tx.state.archive_again_at;
  for (int n = 0; n < kAtOnce; ++n) {
    const std::optional<JobId> id = tx.state.archive_times.PopDue(tx.now.mono);
    if (!id) break;
    const JobEntry& job = std::as_const(tx).job(*id);
    if (InUse(tx, job)) {
      tx.state.archive_times.Set(*id, tx.now.mono + kRetry);
    } else if (IsRead(job)) {
      tx.state.archive_times.Set(*id, tx.now.mono + kReadRetry);
    } else {
      tx.Archive(job, DeletionTime(tx, job.record.ended_unix_ms));
    }
  }
  for (int n = 0; n < kAtOnce; ++n) {
    const std::optional<JobId> id = tx.state.archive.PopDue(tx.now.mono);
    if (!id) break;
    tx.out.store.push_back(DeleteArchivedJob{*id});
  }
}

void ForgetIfDue(Transaction& tx, NodeEntry& node) {
  if (!tx.Expired(node.forget_at)) return;
  if (InUse(tx, node)) {
    node.forget_at = tx.now.mono + kRetry;
  } else {
    tx.Forget(node);
  }
}

}  // namespace muster::control
