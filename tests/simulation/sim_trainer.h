// The model of a rank process and of a gang's collectives: what muster-trainer does as far as
// other processes can see it (docs/recovery.md), with states in place of weights.
//
// A step of a gang: every rank has sealed the step before and joins the last collective; when all
// have, each updates (a slot loses its label and gets the new one) in its own time, seals, and
// computes the next. A kill may fall between any two of these. A peer that dies is felt by the
// others; one that is stopped or out of reach is not.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/base/json.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/random.h"
#include "tests/simulation/segments.h"

namespace muster::sim {

// What all ranks of a job share, on the disk that all nodes see.
struct SimCheckpoint {
  Step step = 0;
  int world_size = 0;
  std::map<int, Content> shards;  // durable ones, by rank
  bool manifest = false;
};
using CheckpointDisk = std::map<std::string, SimCheckpoint>;  // by directory

// The parts of a job file that the model acts on.
struct SimJobPlan {
  Step max_steps = 40;
  Step checkpoint_every = 10;
  Duration compute = std::chrono::milliseconds(400);  // of a step
  bool snapshots = true;
  bool buddies = true;
  bool buddy_copies = false;  // as between hosts: sealed on their own
  bool train = true;          // else a command
  std::string owner;          // empty: the cluster has no users
  std::string queue;
};

class SimGang;

class SimProcess : public std::enable_shared_from_this<SimProcess> {
 public:
  // How it reaches its guardian; null once it has ended.
  struct Pipe {
    std::function<void(const std::string& json, SegmentPtr segment)> report;
    std::function<void(int exit_code, int signal)> exited;
  };

  enum class State { kStarting, kStandby, kForming, kLoading, kTraining, kParked, kEnded };

  std::int64_t pid = 0;
  bool trainer = true;  // else a command: it says nothing and ends by itself
  JobId job;
  int node = 0;
  Pipe pipe;
  State state = State::kStarting;
  bool stopped = false;  // SIGSTOP
  bool hung = false;     // stuck in its own doing
  bool unkillable =
      false;  // in the kernel: SIGKILL has no effect until the machine is booted again

  // From its newest assignment.
  Generation generation = 0;
  int rank = -1;
  int world_size = 0;
  int ranks_per_node = 1;
  std::string token;                 // of the generation's rendezvous
  int master_port = 0;               // where rank 0 is to listen
  int listens = 0;                   // the port of the socket that came with it
  std::vector<std::string> devices;  // whose locks came with it
  bool stop_requested = false;       // at the next step boundary
  Step step = -1;                    // finished; -1: no state yet
  Content content = 0;
  SegmentPtr own;
  SegmentPtr buddy_copy;
  std::vector<SegmentPtr> given;  // by the guardian
  TimePoint inbox_at;             // when the newest message arrives: they keep their order
  TimePoint saver_free;           // when its shards are all written
  std::vector<std::function<void()>> on_continue;  // what waits for that while it is stopped
  std::weak_ptr<SimGang> gang;
  std::uint64_t stores = 0;     // into its page: rises whenever it does something
  std::uint64_t joined = 0;     // collectives of this assignment
  std::uint64_t completed = 0;  // of them
  std::int64_t steps_done = 0;  // by the process
  TimePoint step_began;
  double step_seconds = 0;
  std::uint64_t assignment = 0;  // rises with every assign and park: what was under way is over

  bool alive() const { return state != State::kEnded; }
  bool moves() const { return alive() && !stopped && !hung; }
  // For an assignment.
  bool waits() const {
    return state == State::kStarting || state == State::kStandby || state == State::kParked;
  }
  // All segments that it can read.
  std::vector<SegmentPtr> Readable() const;
};
using ProcessPtr = std::shared_ptr<SimProcess>;

// What happens in trainers that the oracle wants to know.
struct TrainerObserver {
  std::function<void(const SimGang& gang, Step step, const std::string& from)> resumed;
  std::function<void(const JobId& job, Step step, Content content)> trained;  // a state that is
  std::function<void(const SimGang& gang, Step step)> finished_step;          // by all ranks
  // A gang has stopped as it was asked to, its state written.
  std::function<void(const SimGang& gang, Step step)> stopped;
  std::function<void(const SimGang& gang, int rank)> doubled;  // two processes have the rank
  // A process comes to the gang's rendezvous.
  std::function<void(const SimGang& gang, const SimProcess& process)> joins;
};

// What the trainers of a world share.
struct TrainerContext {
  EventQueue* queue = nullptr;
  Random* random = nullptr;
  std::map<JobId, SimJobPlan>* plans = nullptr;
  std::map<JobId, CheckpointDisk>* disks = nullptr;
  std::function<bool(int, int)> reachable;  // between two nodes
  std::function<bool(const JobId&)> disk_full;
  TrainerObserver observer;
  // Seams for planted bugs.
  std::function<std::optional<Cut>(const std::vector<std::vector<ShardClaim>>&)> choose_cut;
  bool seals_late = false;         // joins the last collective before it has sealed
  bool buddy_seals_early = false;  // the copy is labelled before it is whole
};

class SimGang : public std::enable_shared_from_this<SimGang> {
 public:
  SimGang(TrainerContext& context, JobId job, Generation generation, int world_size);

  const JobId& job() const { return job_; }
  Generation generation() const { return generation_; }
  int world_size() const { return static_cast<int>(members_.size()); }
  const std::vector<ProcessPtr>& members() const { return members_; }

  // A process that was assigned this rank arrives at the rendezvous. `resume`: committed
  // checkpoints, newest first, as in its launch.
  void Join(const ProcessPtr& process, std::vector<std::string> resume);
  // A member has ended or parked: the others feel it.
  void Break(const ProcessPtr& who);
  // Something that kept the gang waiting may be over.
  void TryGoOn();
  // Changes whenever the gang comes further.
  std::uint64_t Stage() const { return Mix(loaded_ ? 2 : formed_ ? 1 : 0, Mix(1, step_)); }
  // Where each member is, for messages.
  std::string Describe() const;

 private:
  SimJobPlan& plan() const { return context_.plans->at(job_); }
  // Runs unless the process has ended, parked or been assigned anew meanwhile; waits while it is
  // stopped.
  void Do(const ProcessPtr& process, Duration delay, std::function<void()> action);
  bool AllMove() const;
  // Whether it finds who listens as rank 0.
  bool FindsMaster(const SimProcess& member) const {
    return member.master_port == members_.front()->listens;
  }
  // Whether the two can prove to each other that they know the generation's token.
  bool SharesToken(const SimProcess& member) const {
    return !member.token.empty() && member.token == members_.front()->token;
  }
  void Form();
  void Load();
  std::optional<Cut> AgreeOnCut() const;
  void ReportCut(const std::optional<Cut>& cut);
  std::string RestoreNewest(const std::optional<Cut>& cut);
  void RestoreFromCut(const Cut& cut);
  bool RestoreFromCheckpoint(const std::string& directory);
  void MakeSegments(const std::optional<Cut>& cut);
  void Resumed(const std::string& from);
  bool StopRequested() const;
  void Compute(const ProcessPtr& process);
  void Arrive(const ProcessPtr& process);
  void Update(const ProcessPtr& process, Step step, Content content);
  void Seal(const ProcessPtr& process, Step step, Content content);
  void SealBuddies(const ProcessPtr& process);
  // `then` once it is written, or could not be.
  void SaveCheckpoint(const ProcessPtr& process, std::function<void()> then);
  struct Shard {
    int rank = 0;
    Step step = 0;
    Content content = 0;
  };
  void WriteShard(const ProcessPtr& process, const Shard& shard, const std::function<void()>& then);
  void EndTraining(const ProcessPtr& process);
  void Stop(const ProcessPtr& process);
  void FeelLoss(const ProcessPtr& process);
  void Finish();

  TrainerContext& context_;
  const JobId job_;
  const Generation generation_;
  std::vector<ProcessPtr> members_;  // by rank; null: not yet there
  std::vector<std::string> resume_;
  nlohmann::json rejected_ = nlohmann::json::array();  // of resume_: not whole on disk
  std::set<int> waiting_;                              // ranks in the collective under way
  bool formed_ = false;
  bool may_load_ = false;
  bool loaded_ = false;
  bool broken_ = false;
  bool stopping_ = false;  // agreed on: step_ is the last
  int stopped_ = 0;        // ranks that have
  int saved_ = 0;          // shards of the last step on disk
  Step step_ = -1;         // finished by the gang
  Step first_step_ = 0;    // of this gang
  Content content_ = 0;
  std::set<int> finished_ranks_;  // of step_ + 1
};

// Reports and exits, as the trainer says them.
void Report(SimProcess& process, const std::string& json, SegmentPtr segment = nullptr);
// SIGCONT.
void ContinueProcess(const ProcessPtr& process);
// By itself or by a signal. What ends with its machine closes no connection: its peers feel it when
// they get an answer again, from the machine that was booted.
enum class PeersFeel { kNow, kLater };
void EndProcess(const ProcessPtr& process, int exit_code, int signal,
                PeersFeel peers = PeersFeel::kNow);

}  // namespace muster::sim
