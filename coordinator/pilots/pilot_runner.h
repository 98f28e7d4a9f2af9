// PilotRunner: carries out what PilotPool decides: reads DIR/pilots.yaml, calls Slurm, gives nodes
// their tokens, and writes the status for `muster slurm pilots`.
//
// Owned by the server; everything runs on the loop's thread except blocking work, which one thread
// of its own does in order (PilotFiles). Each outcome comes back as an event that the loop handles
// separately, never within the call that requested it. Without a pilots.yaml it only checks for
// one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "coordinator/pilots/pilot_files.h"
#include "coordinator/pilots/pilot_pool.h"

namespace muster {

struct PilotRunnerOptions {
  std::string dir;           // the cluster's
  std::string config_file;   // pilots.yaml
  std::string status_file;   // what `muster slurm pilots` shows
  std::string coordinator;   // where --tls-listen listens; empty: nowhere, so there are no pilots
  std::string join_address;  // of --join-listen; empty: none, so there are no pilots
  std::string security_dir;  // empty: no authority, so there are no pilots
  std::string user;          // whose Slurm jobs they are
  slurm::Environment environment;
  Duration look_every = std::chrono::seconds(1);
  Duration list_every = std::chrono::seconds(15);  // squeue
  Duration list_soon = std::chrono::seconds(2);    // after something was done
};

// Its actions on the cluster; called on the loop.
struct PilotHooks {
  std::function<PoolFacts()> facts;  // all but the pilots
  std::function<void(const DrainPoolNode&)> drain;
  std::function<void(const ClusterNote&)> note;
  std::function<void(const PoolDeclared&)> declare;
};

class PilotRunner {
 public:
  PilotRunner(EventLoop& loop, PilotRunnerOptions options, PilotHooks hooks);
  // Waits for the command that is under way.
  ~PilotRunner();

  void Start();

  // By their Slurm state in lower case, of those that have not ended.
  std::map<std::string, int> counts() const { return decider_.Counts(); }
  // Keys of those that were requested for the job and that have no node yet.
  std::vector<std::string> PendingFor(const JobId& job) const { return decider_.PendingFor(job); }

 private:
  void Handle(const PoolEvent& event);
  void Do(const LookAtPool& look);
  void Do(const SubmitPilotJob& submit);
  void Do(const CancelPilotJob& cancel);
  void Do(const GivePilotToken& give);
  void Do(const PutPilotAway& put);
  void Do(const CancelStrayJob& cancel);
  void Do(const WritePoolStatus& write);
  void Do(const DrainPoolNode& drain) { hooks_.drain(drain); }
  void Do(const ClusterNote& note) { hooks_.note(note); }
  void Do(const PoolDeclared& pool) { hooks_.declare(pool); }
  void Do(const PoolLogLine& line);
  // `work` runs on the pool's thread; the event that it returns is handled on the loop.
  void OnPool(std::function<PoolEvent(PilotFiles&)> work);

  EventLoop& loop_;
  const PilotRunnerOptions options_;
  const PilotHooks hooks_;
  PilotPool decider_;
  PilotFiles files_;  // the pool's thread alone
  Timer timer_;
  // Outlives the runner in functions that the thread has posted.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  // Besides the bounded ones, a look and a status file. Joins before `files_` is destroyed.
  WorkerPool pool_{"pilots", 1, PilotPool::kMaxUnderWay + 2};
};

}  // namespace muster
