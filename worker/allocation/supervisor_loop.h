// SupervisorLoop: implements RunSupervisor (supervisor.h). In layers, of which each calls those
// below it: supervisor_loop.cc has the election and the work of the leader, supervisor_ending.cc
// the end, supervisor_view.cc what is known of the nodes.
//
// One thread, the loop's.
#pragma once

#include <boost/asio/signal_set.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cluster_paths.h"
#include "common/rpc/endpoint.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "common/telemetry/log.h"
#include "worker/allocation/allocation_ending.h"
#include "worker/allocation/leader_duties.h"
#include "worker/allocation/node_programs.h"
#include "worker/allocation/peer_link.h"
#include "worker/allocation/scheduler.h"
#include "worker/allocation/shared_dir.h"
#include "worker/allocation/supervisor_options.h"

namespace muster::worker {

// Limit of one question to another supervisor.
inline constexpr std::chrono::milliseconds kQuestionLimit{700};

class SupervisorLoop {
 public:
  SupervisorLoop(SupervisorOptions options, std::unique_ptr<Scheduler> scheduler, SharedDir shared);

  Status Begin();
  int Run();

 private:
  // What blocks runs on a pool's thread, and what becomes of it on the loop.
  template <typename Work, typename Then>
  void OnPool(WorkerPool& pool, Work work, Then then);

  void Tick();
  void Act();
  void Do(const AskPeer& ask);
  void Do(const ReadShared& read);
  void Do(const StartCoordinator&);
  void Do(const StopCoordinator&);
  void Do(const Announce&);
  void Do(const Follow& follow);
  void Do(const GiveUp&);

  PeerView View() const;
  void Absorb(const PeerView& peer);
  void RefreshRecord();
  void Heartbeat();
  void CarryLogs();

  void OnCoordinatorUp(const Endpoint& endpoint);
  void OnCoordinatorDown(const std::string& why);
  std::vector<std::string> MissingNodes() const;
  std::set<std::string> NodesWithoutWorker() const;

  void AwaitSignal();
  void OnSignal(int signal);
  void AskScheduler();
  Duration TermGrace() const;

  void Propose(const Ending& ending);
  void Decide(const Ending& ending, int closer);
  void LeaveOut(const std::string& why);
  ClosingOrder Order(const Ending& ending, bool stand_in) const;
  void Do(const EndPrograms&);
  void Do(const AskCloser& ask);
  void Do(const ReadNote&);
  void Do(const NotifyScheduler&);
  void Do(const Exit& go);
  void TickEnd();
  void SweepNode();
  void Finish();

  const SupervisorOptions options_;
  const std::unique_ptr<Scheduler> scheduler_;
  const SharedDir shared_;
  const ClusterPaths local_;
  EventLoop loop_;
  boost::asio::signal_set signals_;
  Member self_;
  Election election_;
  LeaderDuties duties_;
  AllocationEnding ending_;
  std::unique_ptr<NodePrograms> programs_;
  std::unique_ptr<PeerLink> peers_;
  bool start_wanted_ = false;  // of the coordinator
  bool reading_ = false;
  bool writing_heartbeat_ = false;
  bool carrying_ = false;
  bool recording_ = false;
  bool asking_scheduler_ = false;
  bool giving_up_ = false;
  bool proposing_ = false;
  bool stands_in_ = false;  // there is no leader
  TimePoint record_at_{};
  TimePoint heartbeat_at_{};
  TimePoint carry_at_{};
  TimePoint ask_scheduler_at_{};
  std::optional<std::int64_t> kill_wait_seconds_;  // of the scheduler; as far as it was queried
  // The state when the end was decided, and which supervisors have fallen silent since, and whether
  // their machines refuse.
  ClosingOrder order_;
  std::map<int, bool> gone_since_;
  std::optional<int> exit_code_;  // the scheduler knows all that it must
  std::optional<TimePoint> programs_by_;
  bool sweeping_ = false;
  bool swept_ = false;  // nothing of the job runs on this node
  bool finishing_ = false;
  bool stopped_ = false;
  Timer tick_timer_;
  Timer decision_timer_;
  Timer finish_timer_;
  // Joined before what their work uses is gone.
  WorkerPool spawner_{"spawn", 1, 8};
  WorkerPool files_{"shared-dir", 1, 64};
  WorkerPool commands_{"scheduler", 1, 8};
};

template <typename Work, typename Then>
void SupervisorLoop::OnPool(WorkerPool& pool, Work work, Then then) {
  const bool taken = pool.TrySubmit([this, work = std::move(work), then = std::move(then)] {
    auto result = work();
    loop_.Post([then, result = std::move(result)] { then(result); });
  });
  // What must happen has a flag of its own and is queued once, so that only reads that are repeated
  // can find the queue full.
  if (!taken) Log().warn("work of the supervisor is left out: its queue '{}' is full", pool.name());
}

}  // namespace muster::worker
