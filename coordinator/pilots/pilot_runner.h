// PilotRunner: carries out what PoolPlanner decides. Reads DIR/pilots.yaml, keeps the list of
// pilots, asks Slurm, gives nodes their tokens, and writes down for `muster slurm pilots` what
// there is.
//
// Owned by the server; everything runs on the loop's thread but what blocks, which is done in order
// by one thread of its own (PilotFiles). Slurm is asked by one squeue for all pilots every 15 s,
// and for a few seconds after something was done every 2 s. Without a pilots.yaml it does nothing
// but look for one. What fails is tried again with the next look and told once in the log.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "common/slurm/slurm_commands.h"
#include "coordinator/control/events.h"
#include "coordinator/pilots/pilot_files.h"
#include "coordinator/pilots/pool_planner.h"

namespace muster {

struct PilotRunnerOptions {
  std::string dir;           // the cluster's
  std::string config_file;   // pilots.yaml
  std::string status_file;   // what `muster slurm pilots` shows
  std::string coordinator;   // where --tls-listen listens; empty: nowhere, so there are no pilots
  std::string security_dir;  // empty: no authority, so there are no pilots
  std::string user;          // whose Slurm jobs they are
  slurm::Environment environment;
  Duration look_every = std::chrono::seconds(1);
  Duration list_every = std::chrono::seconds(15);  // squeue
  Duration list_soon = std::chrono::seconds(2);    // after something was done
};

// What it does to the cluster; called on the loop.
struct PilotHooks {
  std::function<PoolFacts()> facts;  // all but the pilots
  std::function<void(const DrainPoolNode&)> drain;
  std::function<void(const ClusterNote&)> note;
};

class PilotRunner {
 public:
  PilotRunner(EventLoop& loop, PilotRunnerOptions options, PilotHooks hooks);
  // Waits for the command that is under way.
  ~PilotRunner();

  void Start();

  // By Slurm's state of theirs in lower case, of those that have not ended.
  const std::map<std::string, int>& counts() const { return counts_; }

 private:
  struct Pilot;
  struct PollResult;

  void SchedulePoll(Duration delay);
  void ApplyPollResult(PollResult& look);
  void TakeConfig(const PollResult& look);
  void TakeLoaded(std::vector<PilotRecord> records);
  void TakeJobs(const std::vector<slurm::JobInfo>& jobs);
  void TakeJob(const slurm::JobInfo& job);
  void Update(Pilot& pilot, const slurm::JobInfo& job);
  void CancelStray(std::uint64_t id, const std::string& why);
  void SettleUnknown(const std::set<std::string>& listed);
  void End(const std::string& key, const std::string& state);
  PoolFacts Facts();
  void ObserveNodes(const PoolFacts& facts);
  void GiveTokens(Pilot& pilot, const PoolFacts& facts);
  void Act(const PoolPlan& plan);
  void Do(const SubmitPilot& action);
  void Do(const CancelPilot& action);
  void Submit(Pilot& pilot);
  void Submitted(const std::string& key, const Result<std::uint64_t>& id);
  void Cancel(Pilot& pilot);
  void WriteStatus();
  void RecordEvent(const char* kind, Severity severity, std::string message);
  void Problem(const std::string& what, const Status& status);

  template <typename T>
  void OnPool(std::function<T()> work, std::function<void(const T&)> done);

  EventLoop& loop_;
  const PilotRunnerOptions options_;
  const PilotHooks hooks_;
  std::shared_ptr<PilotFiles> files_;
  PoolPlanner planner_;
  std::optional<PoolConfig> config_;
  std::string config_text_;
  bool loaded_ = false;
  bool listed_once_ = false;  // before that nobody knows what pilots there are
  std::map<std::string, std::unique_ptr<Pilot>> pilots_;  // by key; not ended
  std::set<std::string> over_;                            // keys of ended ones
  std::map<std::string, TimePoint> bad_until_;            // nodes
  std::set<std::uint64_t> strays_;                        // cancelled
  std::map<std::string, int> counts_;
  std::map<std::string, std::string> problems_;  // by what was tried
  std::string condition_;
  std::string failure_;  // of the newest pilot that failed
  std::string status_text_;
  std::optional<TimePoint> listed_at_;
  TimePoint soon_until_;
  TimePoint beat_at_;
  int next_key_ = 0;
  Timer timer_;
  // Outlives the runner in functions that the thread has posted.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  WorkerPool pool_{"pilots", 1, 256};
};

}  // namespace muster
