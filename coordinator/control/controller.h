// Controller: the coordinator's pure core. A state machine over (event, now) that returns what is
// to be done; it owns the jobs, attempts, checkpoints, nodes and the newest events in memory.
//
// Owned by ControllerRuntime (coordinator/service); its loop's thread only. It reads no clock,
// file, socket or random number except the caller's tokens, so the same sequence of events gives
// the same effects. The caller obeys the rule at the top of effects.h, drives one timer by
// NextDeadline(), and calls Restore exactly once before anything else. docs/job-lifecycle.md
// describes what it does and when.
//
// Invariants: a slot is never given out twice; generations of a job only rise; a message of a
// generation other than the current one changes nothing; a terminal job never changes again (except
// for notes of its clean-up and of its checkpoints).
//
// Client errors are replies; a broken invariant ends the process.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "coordinator/access/access.h"
#include "coordinator/control/effects.h"
#include "coordinator/control/events.h"
#include "coordinator/control/explaining.h"
#include "coordinator/control/options.h"
#include "coordinator/control/views.h"
#include "coordinator/domain/records.h"
#include "coordinator/goodput/time_ledger.h"

namespace muster {

class Controller {
 public:
  explicit Controller(ControllerOptions options);
  ~Controller();
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  // Takes over what an earlier process left. Live jobs wait for their workers' Hello for one lease
  // from `now`; until then nothing is assumed dead. Precondition: ParseStoredQueues accepts the
  // queues, and ParseStoredUsers the users.
  Effects Restore(StoredState state, Now now);

  Effects Handle(const Event& event, Now now);

  // When a Tick is due; empty: only events can change anything.
  std::optional<TimePoint> NextDeadline() const;

  // --- queries ---

  // By id, unique prefix of an id, or name (the newest of that name), of the jobs that `filter`
  // takes. Fails with kNotFound or, for
  // an ambiguous prefix, kInvalidArgument.
  Result<JobView> FindJob(std::string_view job, const JobFilter& filter = {}) const;
  // The archived job that FindJob refuses with kFailedPrecondition; empty: none.
  JobId FindArchived(std::string_view job, const JobFilter& filter = {}) const;
  std::size_t archived_jobs() const;
  // Who may do what; valid as long as the controller.
  Access access() const;
  UsersView Users() const;
  // By owner, queue and name.
  const std::map<SecretName, SecretRecord>& Secrets() const;
  // What the job gets of those that it names, in their order, with each use; kNotFound names the
  // first that its owner has no more.
  Result<std::vector<std::pair<SecretUse, SecretRecord>>> SecretsOf(const JobView& job) const;
  std::uint64_t audit_entries() const;  // of the audit trail so far
  // In order of submission.
  std::vector<JobView> Jobs() const;
  // By name.
  std::vector<NodeView> Nodes() const;
  QueuesView Queues() const;
  // What the ranks of queues had by day, up to now; also of jobs and queues that are gone. Like
  // JobView::stored_goodput it never decreases.
  QueueDays UsageByDay(Now now) const;
  // The same over all days, without a look at each.
  QueueTotals UsageTotals(Now now) const;
  // What a pass of the scheduler would be given, and its plan; a second old at most.
  std::shared_ptr<const ScheduleView> ReadSchedule(Now now) const;
  // Newest events of the cluster that are kept in memory, by seq. Older ones are in the store.
  const std::deque<EventRecord>& Events() const;
  // The job is in memory or in the archive. `generation` 0: the newest. kNotFound, or kUnavailable
  // when the node is not connected.
  Result<LogLocation> LocateLog(const JobView& job, int rank, Generation generation) const;
  // Jobs that wait for a gang.
  int PendingJobs() const;
  // Why the job, which is in memory, waits.
  std::shared_ptr<const WhyQuestion> AskWhy(const JobId& job, Now now) const;
  // What would become of a job that is not submitted; fails as its submit would, and names no job
  // then that `sees` does not take.
  Result<std::shared_ptr<const WhyQuestion>> AskWhy(const JobSpec& spec, const std::string& owner,
                                                    Now now, const JobFilter& sees = {}) const;
  // All jobs that were ever submitted, and the slots that no job has. `stored` as in JobView.
  Goodput ClusterGoodput(TimePoint now, bool stored = false) const;

  // What must hold between two events; kInternal names what is broken. For tests: it reads every
  // job and node.
  Status CheckInvariants() const;

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace muster
