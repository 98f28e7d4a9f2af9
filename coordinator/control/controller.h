// Controller: the coordinator's mind. A pure state machine over (event, now) that returns what is
// to be done; it owns the jobs, attempts, checkpoints, nodes and the newest events in memory.
//
// Owned by the server and called on its loop's thread only. It touches no clock, file, socket or
// random number but the caller's tokens, so the same sequence of events gives the same effects. The
// caller obeys the rule at the head of effects.h, drives one timer by NextDeadline(), and calls
// Restore exactly once before anything else. docs/job-lifecycle.md tells what it does and when.
//
// Invariants: slots are never given out twice; generations of a job only rise; a message of
// another generation than the current one changes nothing; a terminal job never changes again
// (but for notes of its clean-up and of its checkpoints).
//
// Errors of clients are replies; a broken invariant ends the process.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "coordinator/control/effects.h"
#include "coordinator/control/events.h"
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
  // from `now`; nothing is assumed to have died.
  Effects Restore(StoredState state, Now now);

  Effects Handle(const Event& event, Now now);

  // When a Tick is due; nothing: only events can change anything.
  std::optional<TimePoint> NextDeadline() const;

  // --- queries ---

  // By id, unique prefix of one, or name (the newest of that name). Fails with kNotFound or, for a
  // prefix of several, kInvalidArgument.
  Result<JobView> FindJob(std::string_view job) const;
  // In order of submission.
  std::vector<JobView> Jobs() const;
  // By name.
  std::vector<NodeView> Nodes() const;
  // Newest events of the cluster that are kept in memory, by seq. Older ones are in the store.
  const std::deque<EventRecord>& Events() const;
  // `generation` 0: the newest. kNotFound, or kUnavailable when the node is not connected.
  Result<LogLocation> LocateLog(std::string_view job, int rank, Generation generation) const;
  // Jobs that wait for a gang.
  int PendingJobs() const;
  // All jobs that ever were, and the slots that none of them has. `stored` as in JobView.
  Goodput ClusterGoodput(TimePoint now, bool stored = false) const;

  // What must hold between two events; kInternal names what is broken. For tests, it looks at
  // every job and node.
  Status CheckInvariants() const;

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace muster
