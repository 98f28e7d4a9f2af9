// LeaderDuties: the leading supervisor's part in the allocation's job: it submits it to its
// coordinator, monitors it, and does what JobMonitor decides.
//
// Also on a supervisor that does not lead, where it only records what is known about the end. Owned
// by a Supervisor; loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/rpc/endpoint.h"
#include "common/runtime/event_loop.h"
#include "worker/allocation/job_client.h"
#include "worker/allocation/job_monitor.h"

namespace muster::worker {

struct LeaderDutiesOptions {
  std::string job_yaml;
  std::string key;                      // of the submission, once per journal
  std::vector<std::string> node_names;  // of the allocation
  JobMonitorOptions monitor;
  // A coordinator that is silent for this long hangs, and another replaces it.
  Duration timeout = std::chrono::seconds(30);
};

// The allocation's nodes, as the supervisors see each other.
struct PeersSeen {
  std::vector<std::string> missing;      // their supervisors are silent
  std::set<std::string> without_worker;  // for the coordinator only: nothing is placed there
};

// Pure. `ready`: nodes on which the coordinator would place something.
NodesSeen SeenNodes(const std::vector<std::string>& node_names, const std::set<std::string>& ready,
                    const PeersSeen& peers);

class LeaderDuties {
 public:
  struct Handlers {
    std::function<void(const Ending& ending)> on_ending;
    std::function<void()> on_hung;  // once for each coordinator
  };

  LeaderDuties(EventLoop& loop, LeaderDutiesOptions options, Handlers handlers);

  // `first`: no coordinator was up in this run before.
  void OnCoordinatorUp(const Endpoint& endpoint, std::string token, bool first, TimePoint now);
  void OnCoordinatorGone() { client_.reset(); }
  // Another leads, and the decisions here may be outdated.
  void Forget();

  // While this supervisor leads.
  void Tick(const PeersSeen& peers, TimePoint now);

  JobMonitor& monitor() { return monitor_; }
  const JobMonitor& monitor() const { return monitor_; }

 private:
  void Submit(TimePoint now);
  void Poll(TimePoint now);
  void AskForNodes(TimePoint now);
  void Heard(const Status& status);
  void Do(const SuspendJob& order);
  void Do(const ResumeJob&);
  void Do(const Ending& ending);

  EventLoop& loop_;
  const LeaderDutiesOptions options_;
  const Handlers handlers_;
  JobMonitor monitor_;
  std::unique_ptr<JobClient> client_;
  std::string job_id_;
  std::set<std::string> ready_;  // nodes, by the coordinator
  bool submitting_ = false;
  bool polling_ = false;
  bool asking_ = false;
  TimePoint submit_at_{};
  TimePoint poll_at_{};
  TimePoint ask_at_{};
  TimePoint heard_{};  // last answer of the coordinator
};

}  // namespace muster::worker
