// Scheduler: a supervisor's requests to the cluster's scheduler, and the only place for them. An
// interface: Slurm in production, a scripted one in tests.
//
// Blocks; called on a pool's thread, one call at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "worker/allocation/allocation_ending.h"
#include "worker/allocation/peer_view.h"

namespace muster::worker {

struct AllocationState {
  std::string batch_node;               // where the batch script runs; empty: there is none
  std::vector<std::string> nodes = {};  // that it still has; empty: unknown
  int run = 0;                          // how often it was requeued
  bool may_requeue = true;
  bool ending = false;  // the scheduler already ends it: cancelled, preempted, out of time
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual Result<AllocationState> Ask() = 0;
  // The end of the allocation's time; empty: it has no limit, or that is unknown.
  virtual Result<std::optional<std::int64_t>> EndUnixSeconds() = 0;
  // From its SIGTERM to its SIGKILL.
  virtual Result<std::int64_t> KillWaitSeconds() = 0;
  // The same job must run again when it can, not on `exclude`. The scheduler ends its processes.
  // False: it was ending the job itself by then, or has started it again.
  virtual Result<bool> Requeue(const std::vector<std::string>& exclude) = 0;
  virtual Status Cancel() = 0;
};

// A supervisor's knowledge when the work is over.
struct ClosingOrder {
  Ending ending;
  int run = 0;
  std::string node;  // its own
  // There is no leader any more, and this one replaces it; `below`: nodes of a lower index that may
  // live.
  bool stand_in = false;
  std::vector<std::string> below;
  std::vector<std::string> missing;  // nodes with silent supervisors
  std::vector<std::string> silent;   // those of them with silent machines
};

enum class ClosingStep {
  kNothing,
  kRequeue,
  kCancel,   // its batch node is lost: nothing else would end it before its time is over
  kRefused,  // work is left, and the job may not be requeued
  kWait,     // the scheduler does not know yet the state of a node
  kLeftOut,  // the allocation goes on without this node, or runs again
};

// Pure. Whether a node is lost is the scheduler's decision: a supervisor that receives nothing may
// be the one that is cut off.
ClosingStep DecideClosing(const AllocationState& state, const ClosingOrder& order);

struct ClosingResult {
  Closing closing = Closing::kDone;
  std::string why;        // a sentence if something is wrong
  bool requeued = false;  // by this one
  // This node cannot inform the scheduler; the batch script, which is elsewhere, may.
  bool left_to_script = false;
};

// Queries the scheduler if necessary, and does what is decided.
ClosingResult CloseAllocation(Scheduler& scheduler, const ClosingOrder& order);

}  // namespace muster::worker
