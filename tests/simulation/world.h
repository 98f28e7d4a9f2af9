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
  kPartition,
  kSlowDisk,
  kFullDisk,
  kUnkillable,
  kDrain,
  kCancel,
};
inline constexpr int kFaultKindCount = 16;
const char* Name(FaultKind kind);

struct WorldOptions {
  std::uint64_t seed = 0;
  int min_nodes = 64;
  int max_nodes = 512;
  int jobs = 24;
  Duration faulty = std::chrono::seconds(60);
  Duration calm_limit = std::chrono::minutes(30);
  bool trace = false;
};

// Where a planted bug takes hold: each seam stands between two parts that are both real.
struct Seams {
  std::function<std::unique_ptr<SimStore>(EventQueue&, Random&)> make_store;
  // What a message becomes on its way; empty: it is lost.
  std::function<std::vector<muster::WorkerMessage>(int node, muster::WorkerMessage)> to_coordinator;
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
  double virtual_seconds = 0;
  std::map<FaultKind, int> faults;
  std::vector<std::uint64_t> hashes;  // of the state, every kHashEvery events
  std::string story;                  // the coordinator's, where something is violated
};
inline constexpr std::uint64_t kHashEvery = 1000;

class World {
 public:
  explicit World(WorldOptions options, Seams seams = {});
  ~World();

  RunResult Run();

 private:
  struct Stream {
    SessionId session = 0;  // 0: none
    bool welcome = false;
    bool cut_off = false;  // the node cannot be reached
    TimePoint up;          // keeps the order
    TimePoint down;
    std::vector<muster::WorkerMessage> held_up;  // while cut off
    std::vector<CoordinatorMessage> held_down;
  };
  struct Request {
    std::string yaml;
    SimJobPlan plan;
    std::string key;
    std::optional<JobId> id;  // acknowledged
    bool cancel = false;
    bool cancelled = false;  // acknowledged
  };

  // --- streams.cc ---
  void TryConnect(int node);
  void BreakStream(int node);
  void SendUp(int node, muster::WorkerMessage message);
  void SendDown(const WorkerSend& send);
  void DeliverUp(int node, SessionId session, muster::WorkerMessage message);
  void Heartbeat(int node);
  void Sample(int node);
  void CutOff(int node, bool cut_off);
  void AnswerProbe(int node, const Probe& probe);

  // --- clients.cc ---
  void SubmitLater(int number);
  void Ask(int number);
  void AskCancel(int number);
  void MakeJob(int number);

  // --- faults.cc ---
  void NextFault();
  void Cause(FaultKind kind);
  ProcessPtr AnyRank();
  SimNode& AnyNode() { return *nodes_[static_cast<std::size_t>(random_.Pick(node_count()))]; }
  void CrashCoordinator(Duration down);
  void Calm();

  // --- world.cc ---
  int node_count() const { return static_cast<int>(nodes_.size()); }
  std::shared_ptr<SimGang> GangOf(const JobId& job, Generation generation, int world_size);
  void GoOnEverywhere();
  // What is not over yet; empty: nothing.
  std::string Unfinished() const;
  std::uint64_t StateHash() const;
  void Check();

  const WorldOptions options_;
  const Seams seams_;
  EventQueue queue_;
  Random random_;
  TrainerContext trainers_;
  std::map<JobId, SimJobPlan> plans_;
  std::map<JobId, CheckpointDisk> disks_;
  std::map<std::pair<JobId, Generation>, std::shared_ptr<SimGang>> gangs_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<Stream> streams_;
  std::unique_ptr<SimCoordinator> coordinator_;
  std::unique_ptr<Oracle> oracle_;
  std::vector<Request> requests_;
  std::vector<FaultKind> enabled_;
  Duration fault_pause_{};
  bool calm_ = false;
  bool duplicates_ = false;
  TimePoint disk_full_until_;
  SessionId next_session_ = 1;
  std::int64_t next_pid_ = 1000;
  RunResult result_;
};

}  // namespace muster::sim
