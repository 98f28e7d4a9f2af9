// What follows from a job's entry and several parts of the controller need: its ranks, its
// checkpoints, its deadlines.
//
// Pure functions of JobEntry (state.h); private to coordinator/control; one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/job_spec/queue_names.h"
#include "coordinator/control/options.h"
#include "coordinator/control/state.h"
#include "coordinator/scheduler/step_function.h"

namespace muster::control {

// Ranks of the newest attempt, which may be fewer than the job was submitted with.
inline int WorldSize(const JobEntry& job) {
  return static_cast<int>(job.attempts.back().ranks.size());
}

// The account of the job's owner, by the users as they are now; empty: none.
inline std::string AccountOf(const State& state, const JobRecord& job) {
  const UserSpec* const owner = state.users.Find(job.owner);
  return owner != nullptr ? owner->account : "";
}

inline bool UsesGpus(const JobEntry& job) { return job.spec.resources.device == "cuda"; }

// The newest attempt that had a state to train from, without the last `skipped` ones; nullptr:
// none. Const where the job is.
template <typename Job>
auto* NewestTrained(Job& job, std::ptrdiff_t skipped = 0) {
  const auto trained =
      std::find_if(job.attempts.rbegin() + skipped, job.attempts.rend(),
                   [](const AttemptRecord& attempt) { return attempt.resumed_step >= 0; });
  return trained == job.attempts.rend() ? nullptr : &*trained;
}

inline void MoveRank(const JobEntry& job, RankRecord& rank, RankEvent event) {
  rank.state = ApplyOrDie(rank.state, event,
                          "rank " + std::to_string(rank.rank) + " of job " + job.record.id.value);
}
inline void MoveCheckpoint(CheckpointRecord& checkpoint, CheckpointEvent event) {
  checkpoint.state =
      ApplyOrDie(checkpoint.state, event,
                 "checkpoint " + checkpoint.directory + " of job " + checkpoint.job.value);
}

inline bool AllExitedWell(const AttemptRecord& attempt) {
  return std::all_of(attempt.ranks.begin(), attempt.ranks.end(), [](const RankRecord& rank) {
    return rank.state == RankState::kExited && rank.end.exit.ok();
  });
}

inline bool NoneAskedToStop(const AttemptRecord& attempt) {
  return std::none_of(attempt.ranks.begin(), attempt.ranks.end(),
                      [](const RankRecord& rank) { return rank.end.asked_to_stop; });
}

// May be resumed from.
inline bool Usable(const CheckpointRecord& checkpoint) {
  return checkpoint.state == CheckpointState::kCommitted && checkpoint.refused.empty();
}

inline bool Verified(const CheckpointRecord& checkpoint) {
  return checkpoint.verified_unix_ms != 0;
}

// A commit record is being written.
inline bool ManifestPending(const JobEntry& job) {
  return std::any_of(
      job.checkpoints.begin(), job.checkpoints.end(), [&job](const CheckpointRecord& checkpoint) {
        return checkpoint.state == CheckpointState::kCommitted && !checkpoint.manifest_written &&
               !job.manifest_failed.contains(checkpoint.directory);
      });
}

inline void UpdateCommittedStep(JobEntry& job) {
  Step newest = 0;
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    if (Usable(checkpoint)) newest = std::max(newest, checkpoint.step);
  }
  job.record.committed_step = newest;
}

// The names of the job's queue and class. A live job's are in the tree: none is removed while a job
// that is not over has it.
inline std::string_view QueueOf(const JobEntry& job) {
  return job.record.queue.empty() ? kDefaultQueue : std::string_view(job.record.queue);
}
inline std::string_view ClassOf(const JobEntry& job) {
  return job.record.priority_class.empty() ? kNormalClass
                                           : std::string_view(job.record.priority_class);
}

inline std::string NameOf(const JobEntry& job) {
  return "job " + job.record.id.value + " (" + job.record.name + ")";
}

// It waits for its release or its begin, not for nodes. Both keep back what waits in the queue; a
// job that recovers goes on.
inline bool IsKeptBack(const JobEntry& job) {
  return !job.gang && job.record.state == JobState::kQueued && (job.record.held || job.begin_at);
}

// It waits for a gang that may be placed now.
inline bool MayBePlaced(const JobEntry& job) {
  return job.pending() && !job.not_before && !IsKeptBack(job);
}

// When it may begin; empty: at once.
inline std::optional<TimePoint> BeginAt(const JobEntry& job, const Now& now) {
  const std::int64_t ahead_ms = job.record.begin_unix_ms - now.unix_ms;
  if (job.record.begin_unix_ms == 0 || ahead_ms <= 0) return std::nullopt;
  return now.mono + FromSeconds(static_cast<double>(ahead_ms) / 1000);
}

inline double SecondsSinceSubmission(const JobEntry& job, const Now& now) {
  return std::max(0.0, static_cast<double>(now.unix_ms - job.record.submitted_unix_ms) / 1000);
}

// Nothing is owed to it any more, nor kept for it.
inline void DropPromise(State& state, JobEntry& job) {
  state.planned.erase(job.record.id);
  job.promised_at.reset();
  job.promise_is_due = false;
  job.collecting.clear();
  job.record.promise = {};
}

// What is left of its time limit, which stands still while the job is set aside.
inline std::chrono::milliseconds TimeLeft(const JobEntry& job, const Now& now) {
  const JobRecord& record = job.record;
  const std::int64_t until = record.suspended_unix_ms > 0 ? record.suspended_unix_ms : now.unix_ms;
  const std::int64_t used =
      record.started_unix_ms == 0 ? 0 : until - record.started_unix_ms - record.suspended_ms;
  return std::chrono::milliseconds(
      std::max<std::int64_t>(0, record.time_limit_seconds * 1000 - used));
}

// When its time limit is reached; empty: never, or it has not been launched yet, or is set aside.
inline std::optional<TimePoint> TimeLimitAt(const JobEntry& job, const Now& now) {
  const JobRecord& record = job.record;
  const bool runs = record.started_unix_ms > 0 && record.suspended_unix_ms == 0;
  if (record.time_limit_seconds <= 0 || !runs) return std::nullopt;
  return now.mono + TimeLeft(job, now);
}

// It is set aside no more. Returns for how long it was.
inline std::int64_t EndSetAside(JobEntry& job, const Now& now) {
  JobRecord& record = job.record;
  const std::int64_t aside = std::max<std::int64_t>(0, now.unix_ms - record.suspended_unix_ms);
  if (record.started_unix_ms > 0) record.suspended_ms += aside;
  record.suspended_unix_ms = 0;
  job.time_limit_at = TimeLimitAt(job, now);
  return aside;
}

// To save and stop at its time limit.
inline Duration StopAllowance(const JobEntry& job) {
  return std::chrono::minutes(2) + 2 * FromSeconds(job.record.checkpoint_seconds);
}

// How long a job has its nodes beside its time limit, at most: what it takes to prepare and launch,
// and to save and stop in the end.
inline Duration BeyondLimit(const JobEntry& job) {
  return kPrepareDeadline + kLaunchDeadline + StopAllowance(job);
}

// From the start of its gang until the job has none any more, at most; nothing: it has no limit.
inline std::optional<Duration> LengthFromStart(const JobEntry& job, const Now& now) {
  if (job.record.time_limit_seconds <= 0) return std::nullopt;
  return BeyondLimit(job) + TimeLeft(job, now);
}

// Plans its end: by its time limit, if it was launched; else its gang starts now.
inline void PlanEnd(JobEntry& job, const Now& now) {
  job.ends_at.reset();
  if (job.time_limit_at)
    job.ends_at = *job.time_limit_at + StopAllowance(job);
  else if (const std::optional<Duration> length = LengthFromStart(job, now))
    job.ends_at = now.mono + *length;
}

// How long a job that waits has its nodes at most; kForever: it has no limit.
inline Duration LengthOf(const JobEntry& job, const Now& now) {
  if (!job.time_limit_at) return LengthFromStart(job, now).value_or(kForever);
  return std::max<Duration>(*job.time_limit_at + StopAllowance(job) - now.mono,
                            std::chrono::seconds(1));
}

// By when a gang that saves its state must have stopped: the time that the request gave, else a
// train job's `timeout`. A command reports nothing, so that there is no estimate for it.
inline std::optional<TimePoint> StopDeadline(const JobEntry& job, const Now& now,
                                             TimePoint timeout) {
  const std::int64_t by = job.record.stop_by_unix_ms;
  if (by > 0) return MonotonicOf(now, by);
  return job.spec.train ? std::optional(timeout) : std::nullopt;
}

// Its slots count, although those of a suspect node are not given out.
inline bool IsUsable(const NodeRecord& node) {
  return node.state == NodeState::kReady || node.state == NodeState::kSuspect;
}

// nullptr: none.
inline CheckpointRecord* FindCheckpoint(JobEntry& job, const std::string& directory) {
  for (CheckpointRecord& checkpoint : job.checkpoints) {
    if (checkpoint.directory == directory) return &checkpoint;
  }
  return nullptr;
}

// The node among those of the live gang and its spares, or nullptr.
inline GangNode* FindMember(JobEntry& job, const NodeName& name) {
  return job.gang ? job.gang->nodes.Find(name) : nullptr;
}

}  // namespace muster::control
