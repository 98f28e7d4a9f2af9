// World: a whole cluster in one thread and virtual time. One coordinator, many nodes, their
// streams, clients, jobs; faults drawn from the seed; an oracle that looks on.
//
// The same seed and options give the same run, event by event (StateHash). Phase one lasts as long
// as the options say and has faults; in phase two nothing fails and everything must come to its
// end.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/oracle.h"
#include "tests/simulation/sim_coordinator.h"
#include "tests/simulation/sim_node.h"
#include "tests/simulation/stream.h"

namespace muster::sim {

enum class FaultKind {
  kKillRank,
  kStopRank,
  kHangRank,
  kExitRank,
  kKillGuardian,
  kKillWorker,
  kLoseMachine,
  kCrashCoordinator,
  kPauseCoordinator,
  kBreakStream,
  kBreakLink,
  kPartition,
  kSplitPeers,
  kSlowDisk,
  kFullDisk,
  kUnkillable,
  kDrain,
  kCancel,
  kFailedDisk,
};
inline constexpr int kFaultKindCount = 19;
const char* Name(FaultKind kind);

struct WorldOptions {
  std::uint64_t seed = 0;
  int min_nodes = 64;
  int max_nodes = 512;
  int jobs = 24;
  Duration faulty = std::chrono::seconds(60);
  Duration scrub_interval = std::chrono::hours(6);
  Duration calm_limit = std::chrono::hours(6);  // liveness.cc has the budgets that count
  bool trace = false;
};

// Where a planted bug takes hold: each seam stands between two parts that are both real.
struct Seams {
  std::function<std::unique_ptr<SimStore>(EventQueue&, Random&)> make_store;
  // What a message becomes on its way; empty: it is lost.
  std::function<std::vector<WorkerMessage>(int node, WorkerMessage)> to_coordinator;
  std::function<std::vector<CoordinatorMessage>(int node, CoordinatorMessage)> to_worker;
  std::function<void(Hello&)> hello;
  std::function<std::optional<Cut>(const std::vector<std::vector<ShardClaim>>&)> choose_cut;
  std::function<void(TrainerContext&)> trainers;
};

struct RunResult {
  std::optional<Violation> violation;
  std::uint64_t events = 0;
  int nodes = 0;
  int jobs = 0;
  std::size_t archived_jobs = 0;   // at the end
  std::size_t archive_scrubs = 0;  // results of scrubs that are stored in the archive
  int stalls = 0;                  // until the coordinator's disk had caught up
  double virtual_seconds = 0;
  std::map<FaultKind, int> faults;
  std::vector<std::uint64_t> hashes;  // of the state, every kHashEvery events
  std::string timeline;               // the coordinator's, where something is violated
};
inline constexpr std::uint64_t kHashEvery = 1000;

class World {
 public:
  explicit World(WorldOptions options, Seams seams = {});
  ~World();

  RunResult Run();

 private:
  enum class StreamEnd {
    kTorn,
    kClosed,  // by the coordinator
    kWorkerDied,
    kMachineLost,
    kCoordinatorDied,
  };
  struct Request {
    std::string yaml;
    SimJobPlan plan;
    std::string key;
    bool asked = false;
    std::optional<JobId> id;  // acknowledged
    bool cancel = false;
    bool cancelled = false;  // acknowledged
    bool suspended = false;  // acknowledged
    bool resumed = false;    // acknowledged
    bool released = false;   // acknowledged
  };

  // --- streams.cc ---
  const SimStream& StreamOf(int node) const { return streams_[static_cast<std::size_t>(node)]; }
  SimStream& StreamOf(int node) { return streams_[static_cast<std::size_t>(node)]; }
  SimNode& NodeAt(int node) { return *nodes_[static_cast<std::size_t>(node)]; }
  void TryConnect(int node);
  void SendUp(int node, WorkerMessage message);
  void PutUp(int node, Event event);
  void ArriveUp(int node, SessionId session);
  void OnTaken(int node, SessionId session);
  void SendDown(const WorkerSend& send);
  void ArriveDown(int node, SessionId session);
  void EndStream(int node, StreamEnd how);
  void EndUp(int node, SessionId session, StreamEnd how);
  void EndDown(int node, StreamEnd how);
  void CloseStream(SessionId session);
  void CutOff(int node, bool cut_off);
  bool Reachable(int a, int b) const;
  void Heartbeat(int node);
  void Sample(int node);
  void AnswerProbe(int node, const Probe& probe);

  // --- clients.cc ---
  // In every fifth seed there are two queues, one with a guarantee, and a class.
  bool HasQueues() const { return options_.seed % 5 == 3; }
  // In every fourth seed there are users, who share their queues within limits.
  bool HasUsers() const { return options_.seed % 4 == 2; }
  bool FilesApplied() const {
    return (queues_applied_ || !(HasQueues() || HasUsers())) && (users_applied_ || !HasUsers());
  }
  // Jobs share their spares, and others run there meanwhile.
  bool SharesSpares() const { return options_.seed % 3 == 0; }
  void ApplyQueues();
  void ApplyUsers();
  void CheckRefusal(int number, const Status& refusal);
  void SubmitLater(int number);
  void Ask(int number);
  void AskCancel(int number);
  void SuspendLater(int number);
  void AskSuspend(int number, double by_seconds);
  void AskResume(int number);
  void ResumeAll();
  bool IsHeld(int number) const;
  void AskRelease(int number);
  void MakeJob(int number);

  // --- faults.cc ---
  void NextFault();
  void Cause(FaultKind kind);
  ProcessPtr AnyRank();
  void StopForAWhile(const ProcessPtr& rank);
  void KillWorker(int node);
  void LoseMachine(int node);
  void Partition(int node);
  void SplitFromPeers(int node);
  void DrainForAWhile(int node);
  void Undrain(int node);
  void UndrainAll();
  void CrashCoordinator(Duration down);
  void Calm();
  void CalmNode(int node);

  // --- liveness.cc ---
  struct Motion {
    std::uint64_t motion = 0;
    TimePoint since;
  };
  std::uint64_t MotionOf(const JobView& job) const;
  void CheckThatAllEnds();
  std::string Describe(const JobView& job) const;
  // What is not over yet; empty: nothing.
  std::string Unfinished() const;

  // --- world.cc ---
  static int IndexOf(const NodeName& name) { return std::stoi(name.value.substr(1)); }
  int node_count() const { return static_cast<int>(nodes_.size()); }
  std::shared_ptr<SimGang> GangOf(const JobId& job, Generation generation, int world_size);
  void GoOnEverywhere();
  // Whether what it says reaches the coordinator, now or later.
  bool CanReport(const SimGang& gang) const;
  void Begin();
  std::uint64_t StateHash() const;
  void Check();
  std::string Timeline() const;

  const WorldOptions options_;
  const ControllerOptions controller_options_;
  const Seams seams_;
  EventQueue queue_;
  Random random_;
  Random disk_random_;  // its own, so that a change of the store leaves the others' fates alone
  TrainerContext trainers_;
  std::map<JobId, SimJobPlan> plans_;
  std::map<JobId, CheckpointDisk> disks_;
  std::map<std::pair<JobId, Generation>, std::shared_ptr<SimGang>> gangs_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<SimStream> streams_;
  std::vector<bool> apart_;            // nodes that reach the coordinator and no other node
  std::map<SessionId, int> sessions_;  // of living streams
  std::unique_ptr<SimCoordinator> coordinator_;
  std::unique_ptr<Oracle> oracle_;
  std::vector<Request> requests_;
  bool queues_applied_ = false;
  bool users_applied_ = false;
  std::vector<FaultKind> enabled_;
  Duration fault_pause_{};
  bool calm_ = false;
  TimePoint calm_at_;
  std::map<JobId, Motion> motions_;
  TimePoint idle_since_;
  TimePoint disk_full_until_;
  SessionId next_session_ = 1;
  std::int64_t next_pid_ = 1000;
  int next_port_ = 4000;
  RunResult result_;
};

}  // namespace muster::sim
