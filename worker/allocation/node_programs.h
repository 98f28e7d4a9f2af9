// NodePrograms: the programs that a supervisor runs on its node: a worker, if the node can run
// ranks, and the coordinator while this node leads. One that ends is started again, the coordinator
// by the owner of this object.
//
// They log to this node's disk; CarryLogs copies that into the shared directory. Loop thread only,
// except CarryLogs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/cluster_paths.h"
#include "common/rpc/endpoint.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "worker/allocation/child_process.h"
#include "worker/allocation/coordinator_child.h"
#include "worker/allocation/log_carrier.h"
#include "worker/allocation/peer_view.h"

namespace muster::worker {

struct NodeProgramsOptions {
  std::string binary_dir;  // with muster-worker and muster-coordinator
  std::string local_dir;
  std::string logs_dir;  // shared
  std::string journal;   // shared
  std::string node;
  std::string address;  // numeric, without a port
  double lease_seconds = 4;
  std::string log_level = "info";
  bool has_worker = true;
  std::vector<std::string> worker_arguments;
};

class NodePrograms {
 public:
  NodePrograms(EventLoop& loop, WorkerPool& spawner, NodeProgramsOptions options,
               CoordinatorChild::Handlers handlers);

  void StartCoordinator();
  // At once; everything that it has sent is in the journal.
  void KillCoordinator() { coordinator_.reset(); }
  // Points this node's worker to the coordinator of `leadership`, and starts it the first time.
  void Follow(const Leadership& leadership, bool own);

  // SIGINT to all; nothing is started any more.
  void End();
  bool Ended() const { return !coordinator_ && !worker_; }
  void Kill();

  // Blocks; on a pool's thread, one call at a time.
  Status CarryLogs();

 private:
  std::vector<std::string> CoordinatorCommand() const;
  std::vector<std::string> WorkerCommand() const;
  std::string LogOf(const std::string& program) const;
  void StartWorker();
  void OnWorkerExit(const ProcessExit& exit);

  EventLoop& loop_;
  WorkerPool& spawner_;
  const NodeProgramsOptions options_;
  const ClusterPaths local_;
  const CoordinatorChild::Handlers handlers_;
  std::unique_ptr<CoordinatorChild> coordinator_;
  std::unique_ptr<ChildProcess> worker_;
  bool follows_ = false;
  bool ending_ = false;
  Duration worker_pause_;
  TimePoint worker_started_{};
  Timer worker_timer_;
  LogCarrier coordinator_log_;
  LogCarrier worker_log_;
};

}  // namespace muster::worker
