// NodeFaults: faults of the whole node, so that a cluster's users can rehearse them. Only if the
// worker was started with --allow-faults; the coordinator orders and records each.
//
//   kill-node     SIGKILL to the node's guardians, everything below them, and this worker
// stop-worker   SIGSTOP to this worker; SIGCONT resumes it
//
// Loop thread only. A fault happens a moment after Inject has accepted it, so that the answer is
// sent before.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/runtime/event_loop.h"

namespace muster::worker {

class NodeFaults {
 public:
  // `jobs_dir` is where the records of the node's guardians are.
  NodeFaults(EventLoop& loop, std::string jobs_dir);

  // kInvalidArgument: there is no such fault.
  Status Inject(const std::string& kind);

 private:
  const std::string jobs_dir_;
  Timer timer_;
};

// SIGKILL to every living guardian with a record in this directory and to all below it.
void KillGuardians(const std::string& jobs_dir);

}  // namespace muster::worker
