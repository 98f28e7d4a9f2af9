#include "worker/allocation/supervisor.h"

#include <cstdio>
#include <functional>
#include <utility>

#include "worker/allocation/node_directory.h"
#include "worker/allocation/supervisor_loop.h"

namespace muster::worker {

// What another step, or a job that had this id before, left there is put aside first.
Result<int> RunSupervisor(SupervisorOptions options, std::unique_ptr<Scheduler> scheduler) {
  SharedDir shared(options.shared_dir, {options.allocation, options.run, options.step});
  MUSTER_RETURN_IF_ERROR(shared.Make());
  MUSTER_RETURN_IF_ERROR(shared.Claim());
  options.monitor.before = shared.ReadProgress();
  // A task that takes a lost one's place follows who leads by now.
  const auto leader = shared.ReadLeadership();
  options.election.first_leads = !leader || leader->leadership.leader.index == options.self.index;
  // Two steps may share a node. Short, for Unix sockets lie below it.
  char of_step[8];
  std::snprintf(of_step, sizeof of_step, "-%04x",
                static_cast<unsigned>(std::hash<std::string>()(options.step) & 0xffff));
  MUSTER_ASSIGN_OR_RETURN(options.local_dir, MakePrivateDirectory(options.local_dir + of_step));
  SupervisorLoop supervisor(std::move(options), std::move(scheduler), std::move(shared));
  MUSTER_RETURN_IF_ERROR(supervisor.Begin());
  return supervisor.Run();
}

}  // namespace muster::worker
