// Oracle: what must hold after every event, whatever happened before
// (docs/testing.md lists it).
//
// It looks at the coordinator through its queries, at the disk, at the processes that really live
// and at what the trainers did. The first violation is kept.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/scheduler/scheduler.h"
#include "tests/simulation/sim_coordinator.h"
#include "tests/simulation/sim_node.h"

namespace muster::sim {

// What jobs have as restart.max_without_progress.
inline constexpr int kAttemptsWithoutProgress = 30;
// What one user may have in a queue.
inline constexpr int kUserRuns = 2;
inline constexpr int kUserQueues = 3;

struct Violation {
  std::string invariant;  // a short name: "slots", "generation rises", ...
  std::string what;
};

class Oracle {
 public:
  Oracle(const SimCoordinator& coordinator, const std::vector<std::unique_ptr<SimNode>>& nodes,
         const std::map<JobId, SimJobPlan>& plans, const std::map<JobId, CheckpointDisk>& disks)
      : coordinator_(coordinator), nodes_(nodes), plans_(plans), disks_(disks) {}

  const std::optional<Violation>& violation() const { return violation_; }
  void Violate(std::string invariant, std::string what);

  // --- what happens ---
  void Acknowledged(const JobId& job, const std::string& key);
  void CancelAcknowledged(const JobId& job);
  void SuspendAcknowledged(const JobId& job);
  void ResumeAsked(const JobId& job);
  void ReleaseAsked(const JobId& job) { jobs_[job].release_asked = true; }
  void ReleaseAcknowledged(const JobId& job);
  void ResumeAnswered(const JobId& job) { --jobs_[job].resumes_pending; }
  void Resumed(const SimGang& gang, Step step, const std::string& from);
  void FinishedStep(const SimGang& gang, Step step);
  void Trained(const JobId& job, Step step, Content content);
  void Stopped(const SimGang& gang, Step step);
  void Doubled(const SimGang& gang, int rank);
  void Joins(const SimGang& gang, const SimProcess& process);
  void Removes(const JobId& job, const std::string& directory);
  // A fault that ends a process on this node that holds segments, or cuts it off from the others.
  void HolderFault(int node) { ++holder_faults_[node]; }

  // From now on nothing fails any more.
  void Calm(std::int64_t unix_ms) { calm_unix_ms_ = unix_ms; }

  // --- checks ---
  void AfterCoordinatorEvent(const std::vector<JobId>& changed);
  // In a cluster with users.
  void AfterPass(const SchedulerSnapshot& snapshot, const SchedulePlan& plan);
  void AfterNodeEvent(int node);
  void AfterCrash();
  void AtTheEnd();

 private:
  struct JobFacts {
    Generation generation = 0;
    Generation ended = 0;             // the newest attempt that has
    std::set<NodeName> out_of_reach;  // while it was being ended
    std::optional<JobState> final_state;
    std::optional<Generation> cancelled_at;
    Step finished = 0;  // by a whole gang
    Generation resumed_by = 0;
    std::map<int, int> nodes;  // of the gang that resumed last, with their faults until then
    std::map<Step, std::set<Content>> contents;
    std::set<std::string> committed;
    // The gang that was stopped last: its step, and its nodes with their faults until then.
    Step stopped_at = 0;
    std::map<int, int> stopped_on;
    bool resume_asked = false;               // ever
    bool release_asked = false;              // ever
    int resumes_pending = 0;                 // asked and not answered
    std::optional<Generation> suspended_at;  // and not asked to go on since
    Generation preempted = 0;                // the newest attempt that was
    Step set_aside_at = 0;                   // its checkpoint's step when it was suspended last
  };
  std::map<int, int> FaultsOf(const SimGang& gang) const;
  void CheckAudit();
  void CheckUsage();
  void CheckJob(const JobView& job);
  void CheckEnded(const JobView& job, JobFacts& facts);
  void CheckFailed(const JobView& job);
  void CheckSuspended(const JobView& job, JobFacts& facts, int live);
  void CheckCheckpoints(const JobView& job, JobFacts& facts);
  bool LiesWhole(const CheckpointRecord& checkpoint) const;
  void CheckSlots();
  void CheckDevices(const SimNode& node);
  void CheckDrained();
  void CheckCalmAttempts(const JobView& job);

  const SimCoordinator& coordinator_;
  const std::vector<std::unique_ptr<SimNode>>& nodes_;
  const std::map<JobId, SimJobPlan>& plans_;
  const std::map<JobId, CheckpointDisk>& disks_;
  std::optional<Violation> violation_;
  std::map<JobId, JobFacts> jobs_;
  std::map<std::string, JobId> acknowledged_;  // by key
  std::map<int, int> holder_faults_;           // by node
  std::map<std::pair<JobId, Generation>, std::string> tokens_;
  std::uint64_t events_ = 0;
  std::int64_t calm_unix_ms_ = 0;
  bool has_users_ = false;
};

}  // namespace muster::sim
