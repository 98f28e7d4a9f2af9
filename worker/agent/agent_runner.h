// AgentRunner: carries out what Agent decides.
//
// Owns the connections to the guardians and the progress pages; runs blocking work on separate
// threads, in a lane for each job, and brings the results back to the loop. Loop thread only,
// except the constructor and the destructor, when the loop no longer runs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "common/base/proc_reader.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/worker_lanes.h"
#include "worker/agent/agent.h"
#include "worker/agent/guardian_gate.h"
#include "worker/agent/guardian_link.h"
#include "worker/agent/guardian_watchdog.h"
#include "worker/agent/owner_files.h"
#include "worker/agent/progress_sampler.h"
#include "worker/agent/scrubber.h"
#include "worker/agent/segment_keeper.h"
#include "worker/process/secret_file.h"

namespace muster::worker {

// Asks the coordinator for the secrets of the job's ranks here; blocks, on any thread.
using FetchSecrets = std::function<Result<RankSecrets>(const JobId& job, Generation generation)>;

struct AgentRunnerOptions {
  std::string jobs_dir;     // absolute
  std::string devices_dir;  // where devices are locked; absolute
  LaunchContext launch;
  FetchSecrets fetch_secrets;
  std::string launcher;  // socket of muster-launcher; empty: jobs run as this process's user
  // Series of what has ended stay on /metrics for three scrapes of this interval.
  Duration scrape_interval = std::chrono::seconds(15);
  // How often a guardian is checked; three times this without an answer and it is killed.
  Duration guardian_tick = std::chrono::seconds(1);
  // For how long a guardian that sends too much is not listened to.
  Duration flood_pause = std::chrono::seconds(10);
};

class AgentRunner {
 public:
  using SendFunction = std::function<void(WorkerMessage)>;

  AgentRunner(EventLoop& loop, AgentRunnerOptions options, SendFunction send);

  // Takes over the jobs that are on the node and calls `ready` when their guardians have sent their
  // state, or had enough time for it.
  void Start(std::function<void()> ready);
  void Handle(const CoordinatorMessage& message);

  std::vector<HostedGeneration> Hosted() const;
  std::vector<GpuUse> GpusInUse() const { return agent_.GpusInUse(); }
  const ProgressSampler& sampler() const { return sampler_; }
  // Pieces of work that a full lane has refused.
  std::uint64_t refused() const;

 private:
  void HandleMessage(const Welcome& welcome);
  // Refused at once if it has no account where jobs run as their owners.
  void HandleMessage(const Prepare& prepare);
  // Orders that are the agent's events.
  template <typename Order>
  requires std::is_constructible_v<Event, const Order&>
  void HandleMessage(const Order& order) { Decide(order); }
  void HandleMessage(const CheckpointCommitted& committed);
  void HandleMessage(const ReadLog& request);
  void HandleMessage(const Refused&) {}  // the session's
  void HandleMessage(const Probe&) {}    // of the node, as faults without a job: WorkerServer
  void HandleMessage(const ScrubCheckpoint& order);
  void HandleMessage(const CancelScrub& cancel);

  void Answer(const CheckpointScrubbed& scrubbed);  // any thread

  // Carries out what the agent decides.
  void Decide(const Event& event);
  void Do(const SendToCoordinator& effect);
  void Do(const SendToGuardian& effect);
  void Do(const StartGuardian& effect);
  void Do(const StartPreflight& effect);
  void Do(const StageLaunch& effect);
  void Do(const StartTerminationProof& effect);
  void Do(const ForgetJob& effect);
  void Do(const ScheduleStuckCheck& effect);
  void Do(const CheckStuck& effect);
  void Do(const LogNote& effect);

  // Runs `work` in the job's lane, then `then` with its result on the loop. If the lane is full,
  // because the job's storage hangs, `then` gets `refusal`. The loop never blocks.
  template <typename Work, typename Then>
  void RunOn(WorkerLanes& lanes, const JobId& job, Work work, Then then,
             std::invoke_result_t<Work> refusal);
  // For work that would not be requested again.
  template <typename Refused>
  void DoLater(const Refused& effect);

  void AdoptJob(const std::string& name);
  // `greets`: it listened, so its Hello is waited for.
  void Connect(const JobId& job, PacketSocket socket, bool greets);
  void ScheduleGuardianCheck(const JobId& job);
  // Ends a guardian that does not answer: nothing can control its ranks. Takes a copy, because the
  // timer that holds the original is started again.
  void CheckGuardian(JobId job);
  void OnEvent(const JobId& job, const GuardianEvent& event, UniqueFd descriptor);
  // Whether it is taken. Closes the connection for a while if there are too many.
  bool Admits(const JobId& job, const GuardianEvent& event, const Prepare& prepare);
  void AddPage(const Prepare& prepare, const GuardianRankStarted& started, const UniqueFd& page);
  // The guardian may only have dropped the connection: then its record is still locked.
  void OnLinkClosed(const JobId& job, const Status& why, int attempt);
  void CheckReady();
  void ScheduleSampling();

  EventLoop& loop_;
  const AgentRunnerOptions options_;
  const SendFunction send_;
  Agent agent_;
  ProgressSampler sampler_;
  Duration progress_interval_;
  SegmentKeeper segments_;
  std::map<JobId, UniqueFd> secrets_;  // of the newest generation; secret_file.h
  struct Connection {
    std::unique_ptr<GuardianLink> link;
    GuardianWatchdog watch;
    Timer tick;
  };
  std::map<JobId, std::unique_ptr<Connection>> links_;
  std::map<JobId, GuardianGate> gates_;
  std::map<JobId, std::unique_ptr<Timer>> reconnects_;
  std::map<JobId, std::unique_ptr<Timer>> stuck_looks_;
  std::map<JobId, std::vector<ProcessInfo>> stuck_;  // as the job's last proof found them
  int ending_unknown_ = 0;                           // jobs without records, before `ready_`
  std::function<void()> ready_;
  Timer ready_timer_;
  Timer sample_timer_;
  OwnerFiles files_;
  Scrubber scrubber_;
  Scrubber verifier_;
  bool sampling_ = false;
  // One set of lanes for each thing that work waits for: a job's own storage must not delay the
  // proof that the job is gone. Destroyed first, which joins the threads.
  WorkerLanes node_lanes_{"node", 256, 64};  // the node's own disk, /proc, guardians
  WorkerLanes preflight_lanes_{"preflight", 256, 16};
  WorkerLanes checkpoint_lanes_{"checkpoint", 64, 64};
  WorkerLanes log_lanes_{"logs", 64, 256};
  WorkerLanes secret_lanes_{"secrets", 16, 64};  // the coordinator
};

}  // namespace muster::worker
