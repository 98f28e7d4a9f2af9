// Scheduler: what a supervisor asks of the cluster's scheduler, and of it alone. A seam: Slurm in
// production, a scripted one in tests.
//
// Blocks; called on a pool's thread, one call at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "worker/allocation/peer_view.h"

namespace muster::worker {

struct AllocationState {
  std::optional<std::int64_t> end_unix_seconds;  // of its time; nothing: no limit, or not known
  std::string batch_node;  // where the batch script runs; empty: there is none
  bool may_requeue = true;
  bool ending = false;  // the scheduler ends it already: cancelled, preempted, out of time
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual Result<AllocationState> Ask() = 0;
  // The same job is to run again when it can, not on `exclude`. What runs of it is ended by the
  // scheduler.
  virtual Status Requeue(const std::vector<std::string>& exclude) = 0;
  virtual Status Cancel() = 0;
};

// What is left to do when the work is over: a requeue, or the end of an allocation whose batch node
// is lost (`missing` has it), which would otherwise burn on without anybody in it.
// kFailedPrecondition: a requeue is wanted, and the job may not be requeued.
Status CloseAllocation(Scheduler& scheduler, const Ending& ending,
                       const std::vector<std::string>& missing);

}  // namespace muster::worker
