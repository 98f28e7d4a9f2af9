#include "worker/allocation/scheduler.h"

#include <algorithm>

namespace muster::worker {

Status CloseAllocation(Scheduler& scheduler, const Ending& ending,
                       const std::vector<std::string>& missing) {
  MUSTER_ASSIGN_OR_RETURN(const AllocationState state, scheduler.Ask());
  if (state.ending) return OkStatus();
  const bool orphan = !state.batch_node.empty() &&
                      std::find(missing.begin(), missing.end(), state.batch_node) != missing.end();
  const bool requeue = ending.action == EndAction::kRequeue;
  if (requeue && state.may_requeue) return scheduler.Requeue(ending.exclude);
  if (orphan) MUSTER_RETURN_IF_ERROR(scheduler.Cancel());
  if (!requeue) return OkStatus();
  return FailedPrecondition(
      "the job may not be requeued; submit it with sbatch --requeue, or submit it again: it goes "
      "on "
      "from its last checkpoint");
}

}  // namespace muster::worker
