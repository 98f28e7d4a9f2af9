// JobMonitor: how the leading supervisor handles the allocation's job, until it knows how the
// allocation ends. Pure.
//
// Signals, preemption and the end of the allocation's time are one request: save and stop by then.
// A job that was stopped this way is suspended, and the allocation ends with 75 and is requeued; a
// new run of the same allocation resumes it. A job that waits for nodes which this allocation has
// lost, or on which the coordinator places nothing, ends it in the same way, with those nodes
// excluded. A job that its user has suspended ends it at once: idle nodes cost as much as others,
// and a requeue of the Slurm job resumes it.
//
// Requeues are limited: in total, and in a row without progress of the job. A run that was ended
// from outside before half of its time was over, by preemption or by a user's requeue, does not
// count as one without progress.
//
// Owned by a Supervisor; its thread. Time is an argument.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/allocation/peer_view.h"

namespace muster::worker {

// The exit codes of a supervisor: as in `muster wait`, else from sysexits.h.
inline constexpr int kExitSucceeded = 0;     // the job succeeded
inline constexpr int kExitFailed = 10;       // the job failed
inline constexpr int kExitCancelled = 11;    // the job was cancelled
inline constexpr int kExitSuspended = 12;    // its user has suspended the job
inline constexpr int kExitBadUsage = 64;     // a flag is wrong or missing
inline constexpr int kExitBadData = 65;      // the job file or torchrun's line is wrong, or does
                                             // not fit the allocation
inline constexpr int kExitLeftOut = 68;      // the others go on without this node
inline constexpr int kExitUnavailable = 69;  // requeued often enough, or several runs in a row came
                                             // no further
inline constexpr int kExitRequeue = 75;      // work is left
inline constexpr int kExitConfig = 78;       // this allocation, step or node cannot run the job

// How far the job has come in all runs of the allocation that recorded it at their end.
struct RunProgress {
  int run = -1;                 // the last of them; -1: none
  std::int64_t step = 0;        // the furthest
  std::int64_t checkpoint = 0;  // step of the newest committed one
  int in_vain = 0;              // the last runs without progress, in a row

  friend bool operator==(const RunProgress&, const RunProgress&) = default;
};

struct JobMonitorOptions {
  int run = 0;  // SLURM_RESTART_COUNT
  int max_requeues = 100;
  // Runs in a row without progress, after which the job is not requeued; 0: it does not report
  // steps, so progress is unknown.
  int max_in_vain = 0;
  RunProgress before;  // of the runs before this one
  // Before the end of the allocation's time the job is asked to stop: by this much, or, if it is
  // not set, by twice the time that a checkpoint took and a minute, because Slurm rounds to
  // minutes. The latter at most half of the time, so that each run makes progress.
  std::optional<Duration> lead;
  Duration margin = std::chrono::seconds(3);    // between the job's limit and the node's
  Duration timeout = std::chrono::seconds(60);  // of a job that waits for nodes
  // For a resume, to let the nodes come up: with min_nodes the job would otherwise start with
  // fewer.
  Duration assembly = std::chrono::seconds(15);
};

enum class JobPhase { kWaiting, kActive, kSuspended, kSucceeded, kFailed, kCancelled };

struct JobPicture {
  JobPhase phase = JobPhase::kWaiting;
  std::string reason;             // why it waits or how it ended
  double checkpoint_seconds = 0;  // from the order to the commit; 0: unknown
  std::int64_t step = 0;          // newest finished one
  std::int64_t checkpoint = 0;    // step of the newest committed one; 0: none
};

// The allocation's nodes, as the leader and its coordinator see them.
struct NodesSeen {
  std::vector<std::string> missing;  // their supervisors are silent
  std::vector<std::string> unready;  // others on which the coordinator would place nothing
  bool some_ready = false;           // it would on some
};

// Effects.
struct SuspendJob {
  double by_seconds = 0;
  std::string reason;
};
struct ResumeJob {};
using JobMonitorEffect = std::variant<SuspendJob, ResumeJob, Ending>;

class JobMonitor {
 public:
  explicit JobMonitor(JobMonitorOptions options) : options_(options) {}

  // The coordinator will never accept the job.
  void OnRefused(const Status& why);
  void OnJob(const JobPicture& job);
  // A report that the allocation, or a node of it, must have ended by then.
  void OnStopNotice(TimePoint by, const std::string& reason);
  // The scheduler's signal that the end is near: the job must stop now, and has until the end of
  // the allocation's time, or, if that is unknown, for `otherwise`.
  void OnEndIsNear(const std::string& reason, Duration otherwise, TimePoint now);
  void SetEndTime(TimePoint end, TimePoint now);
  void Tick(const NodesSeen& nodes, TimePoint now);
  // The supervisor of the run's first coordinator: a job that is suspended then was left by an
  // earlier run.
  void OnRunBegins() { run_begins_ = true; }
  // The coordinator has restarted, and may have lost the requests to the previous process.
  void OnCoordinatorChanged();

  // The end that is allowed: after the last permitted requeue the job is left.
  Ending Limited(Ending ending) const;
  // What the next run must know if this one ends this way.
  RunProgress ProgressAfter(const Ending& ending) const;

  std::vector<JobMonitorEffect> TakeEffects();
  bool ended() const { return ended_; }
  // The next step depends on the nodes: they must be requested from the coordinator.
  bool WantsNodes() const {
    return job_ && (job_->phase == JobPhase::kWaiting || job_->phase == JobPhase::kSuspended);
  }
  const std::optional<TimePoint>& stop_by() const { return stop_by_; }
  const std::string& stop_reason() const { return stop_reason_; }

 private:
  void End(Ending ending);
  void StopBy(TimePoint by, const std::string& reason);
  bool CutShort() const;
  void OnSuspended(const JobPicture& job);
  bool OfEarlierRun(const JobPicture& job) const;
  void ConsiderResuming(const NodesSeen& nodes, TimePoint now);
  Duration Lead() const;
  void AskToStop(TimePoint now);
  void WatchWaiting(const NodesSeen& nodes, TimePoint now);
  void EndUnplaced(const NodesSeen& nodes);

  JobMonitorOptions options_;
  std::optional<JobPicture> job_;
  std::optional<TimePoint> end_time_;
  Duration time_left_{};       // when the end was first known
  TimePoint now_{};            // of the last tick
  bool told_to_stop_ = false;  // by others, not by the time
  std::int64_t step_ = 0;      // as in RunProgress, in this run
  std::int64_t checkpoint_ = 0;
  std::optional<TimePoint> stop_by_;
  std::string stop_reason_;
  std::optional<TimePoint> asked_;  // to suspend, or to resume
  std::optional<TimePoint> waiting_since_;
  std::optional<TimePoint> suspended_since_;  // as far as this run's leader knows
  bool run_begins_ = false;
  bool ran_ = false;         // in this run, as far as this leader knows
  bool some_ready_ = false;  // at any time
  bool ended_ = false;
  std::vector<JobMonitorEffect> effects_;
};

// Contained in the reason of a suspension by the end of an allocation, so that the next run
// recognises it.
std::string RunMark(int run);
// The run in such a reason, which may have additions; -1: another reason.
int MarkedRun(const std::string& reason);

}  // namespace muster::worker
