// Explain: everything that keeps a waiting job from starting now, with numbers; which jobs have
// what it needs; and, for each key of a job file, the smallest change that would let it start.
//
// Changes are what Plan would decide: the job's request with the change in the place of the job's,
// everything else as it is, gets a gang, and with a smaller change of that key it gets none. Where
// no change of a key other than a time limit does that, it is one with which gangs give way to the
// job, if none do to it as it is; with a smaller one none do (of more than 64 sizes: with the next
// smaller one). The job keeps its turn, but not its promise. Sizes change in steps: nodes, ranks,
// GPUs and CPUs by one, memory by a MiB, a time limit by a second.
//
// Pure; any thread. KnownPlan makes one pass and records it. An answer takes none of its own where
// the record has the turns of the job: it has none of jobs that were promised a start, that gangs
// give way to, or in front of which very many take something. Then an answer takes a pass up to
// these turns, and one for a job that is not submitted. What may delay promised starts takes one up
// to the last of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "coordinator/scheduler/pass_record.h"
#include "coordinator/scheduler/scheduler.h"

namespace muster {

// What keeps a job from starting. The last ones are not the scheduler's to say.
enum class WaitCode {
  kQuota,      // its queue, or one above it, would exceed its ceiling
  kUnsuited,   // nodes that lack something even if they are empty
  kExcluded,   // nodes that it may not have
  kOccupied,   // nodes that have too little free
  kReserved,   // nodes that are kept for a job ahead of it
  kTimeLimit,  // nodes with room now, which a job ahead of it was promised before this one ends
  kTopology,   // enough nodes have room, too few of them in one place
  kNoNodes,    // none is ready
  kHealth,     // nodes that could hold a part of it, and are lost, drained, ...
  kHeld,       // until it is released
  kBegin,      // until its begin
  kSuspended,  // until it is resumed
  kBackoff,    // a failed attempt is over for too short a time
  kReclaim,    // a gang gives way to it, or would
  kLent,       // a shared spare that it recovers on: what runs there leaves it first
  kElsewhere,  // devices of a node are in use by jobs of other workers
};
std::string_view Name(WaitCode code);  // quota, unsuited, excluded, occupied, reserved, ...

struct WaitCause {
  WaitCode code = WaitCode::kOccupied;
  int nodes = 0;                     // that it concerns; of kReclaim: 0 is the whole gang
  Lack lack = Lack::kNothing;        // of kUnsuited and kOccupied
  std::string state;                 // of kHealth: of the nodes
  std::vector<NodeName> names = {};  // of kHealth, kLent, kElsewhere: the first nodes
  JobId job = {};                    // of kReclaim, kLent: whose gang; else that nodes are kept for
  TimePoint at = kNever;             // its start, or the time that is waited for; kNever: not known
  std::string queue = {};            // of kQuota
  bool of_user = false;              // it is the ceiling of each user of that queue
  std::string user = {};             // kAnyUser: who asks; empty: not known
  Amounts used = {}, wanted = {}, ceiling = {};
  std::string text = {};  // why it is held; what a reclaim costs by now; which devices, and by whom
};

// A job that has what this one needs, or is ahead of it.
struct Blocker {
  JobId job;
  int nodes = 0;           // that this one could use without it
  bool in_queue = false;   // it has a part of the queue that would exceed its ceiling
  bool waits = false;      // they are kept for it
  TimePoint at = kNever;   // when it ends, or starts if it waits; kNever: not known
  bool predicted = false;  // `at` is no limit, but a guess by its progress
};

// A promised start that would be later.
struct Delay {
  JobId job;
  TimePoint promised;
  TimePoint later = kNever;  // kNever: none would be planned any more
  DelayCause cause = DelayCause::kNone;
};

// In the order in which changes are listed.
enum class ChangeKey {
  kNodes,
  kRanksPerNode,
  kGpusPerRank,
  kCpusPerRank,
  kMemoryPerRank,
  kTimeLimit,
  kGpuKind,    // any
  kGpuMemory,  // any
  kLabels,     // without one of the rules, or without all
  kTopology,   // preferred
  kExclude,    // none
  kClass,      // the next higher one that helps
  kQueue,      // the first other one that helps
};
std::string_view Name(ChangeKey key);  // nodes, ranks_per_node, gpus_per_rank, ...

struct Change {
  ChangeKey key = ChangeKey::kNodes;
  GangRequest request;  // with it
  std::vector<Delay> delays = {};
  std::vector<Reclaim> reclaims = {};  // it starts when these have given way; empty: at once
  TimePoint start = kNever;            // then, at the latest
};

// A gang that runs.
struct GangWithNodes {
  JobId job;
  std::vector<NodeName> nodes;      // with its spares
  std::vector<NodeName> lent = {};  // those that are shared spares of others
  int queue = 0;
  TimePoint ends = kNever;
  bool predicted = false;
};

// When a job starts by a plan.
struct PlannedStart {
  TimePoint at = kNever;
  DelayCause delayed = DelayCause::kNone;
};
// Jobs that start now, have a planned start, or were promised one that does not hold; no other has
// a start.
using PlannedStarts = std::map<JobId, PlannedStart>;

// A snapshot and what a pass decides about it, for any number of questions.
class KnownPlan {
 public:
  // A job of the snapshot; nullptr: it does not start now, or does not wait.
  struct Entry {
    const GangRequest* request = nullptr;
    const GangPlacement* placement = nullptr;
    const WaitingJob* waiting = nullptr;
  };

  // Makes the pass. Both outlive it.
  KnownPlan(const SchedulerSnapshot& snapshot, const std::vector<GangWithNodes>& gangs);
  KnownPlan(const KnownPlan&) = delete;
  KnownPlan& operator=(const KnownPlan&) = delete;

  const SchedulerSnapshot& snapshot() const { return record_.snapshot(); }
  const std::vector<GangWithNodes>& gangs() const { return gangs_; }
  const PassRecord& record() const { return record_; }
  const SchedulePlan& plan() const { return plan_; }
  const PlannedStarts& starts() const { return starts_; }  // by the plan
  // Requests of jobs that were promised a start.
  const std::vector<const GangRequest*>& promised() const { return promised_; }
  // Where the nodes of a gang are among those of the pass; others are not there.
  const std::vector<std::size_t>& PlacesOf(std::size_t gang) const { return places_[gang]; }
  // nullptr: the snapshot has no request of the job.
  const Entry* Find(const JobId& job) const;

 private:
  const std::vector<GangWithNodes>& gangs_;
  PassRecord record_;
  const SchedulePlan plan_;
  const std::vector<const GangRequest*> promised_;
  const PlannedStarts starts_;
  std::unordered_map<JobId, Entry> entries_;
  std::vector<std::vector<std::size_t>> places_;
};

struct ExplainQuestion {
  JobId job;                              // one of the snapshot's requests
  std::optional<GangRequest> added = {};  // a job that is not submitted: `job` is not read then
  std::vector<int> queues = {};  // others that would take the job, by their place in the tree
  std::vector<NodeName> kept_away = {};  // of its `exclude`: not by the job file
  Duration least_length = {};            // with the shortest time limit
};

struct Explanation {
  std::optional<GangPlacement> placement;  // it starts now
  WaitingJob waiting;                      // it does not
  std::vector<WaitCause> causes;
  std::vector<Blocker> blockers;  // the first that end or start first
  std::vector<Change> changes;    // of a job that does not recover; by key
  std::vector<Delay> delays;      // by a new job as it is
};

// What the question is about; nullptr: the snapshot has no request of the job.
const GangRequest* RequestOf(const KnownPlan& known, const ExplainQuestion& question);

// Empty if the snapshot has no request of the job.
Explanation Explain(const KnownPlan& known, const ExplainQuestion& question);

// Starts that other jobs were promised and that are later in a pass over `after` than in one over
// `before`, which differ in that job alone.
std::vector<Delay> DelaysBetween(const SchedulerSnapshot& before, const SchedulerSnapshot& after,
                                 const JobId& job);

}  // namespace muster
