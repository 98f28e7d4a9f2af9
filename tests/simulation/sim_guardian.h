// SimGuardian: a guardian's process. The real GuardianCore; its effects are carried out on
// simulated processes, segments and files.
//
// Everything between it and its worker takes a little time and keeps its order. When it dies its
// ranks die with it; the unkillable ones stay.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tests/simulation/sim_trainer.h"
#include "worker/guardian/guardian_core.h"

namespace muster::sim {

// What a guardian leaves on its node's disk.
struct GuardianFiles {
  Generation newest = 0;
  std::map<std::pair<Generation, int>, GuardianRankExited> exits;
};

class SimGuardian : public std::enable_shared_from_this<SimGuardian> {
 public:
  struct Surroundings {
    TrainerContext* trainers = nullptr;
    int node = 0;
    std::function<std::int64_t()> new_pid;
    std::function<Result<int>()> bind;  // a listening socket; its port
    // The gang of (job, generation), which is made with its first member.
    std::function<std::shared_ptr<SimGang>(const JobId&, Generation, int world_size)> gang;
    // The committed checkpoints in the launch of this generation.
    std::function<std::vector<std::string>(const JobId&, Generation)> resume;
    std::function<void(const ProcessPtr&)> born;
    // Whether this guardian may have these devices, all of them.
    std::function<Status(const SimGuardian&, const guardian::LockDevices&)> lock;
    std::function<void()> handled;  // after every event
  };
  // The worker's end of a connection.
  struct Listener {
    std::function<void(const GuardianEvent&, SegmentPtr)> event;
    std::function<void()> closed;  // by the guardian's end, after all that it has said
  };

  SimGuardian(JobId job, GuardianFiles& files, Surroundings surroundings);

  const JobId& job() const { return job_; }
  bool alive() const { return alive_; }
  const std::map<guardian::ProcessId, ProcessPtr>& processes() const { return processes_; }
  const guardian::GuardianCore& core() const { return core_; }
  const std::vector<std::string>& locked() const { return locked_; }

  // A worker connects; a connection before it ends. What it says on one that has ended is lost.
  void Connect(Listener listener);
  void Disconnect() {
    listener_.reset();
    ++connection_;
  }
  std::uint64_t connection() const { return connection_; }
  void Command(std::uint64_t connection, const GuardianCommand& command,
               SegmentPtr segment = nullptr);
  void Terminate();
  // kill -9.
  void Kill();

 private:
  void Decide(const guardian::Event& event);
  void CarryOut(const guardian::Event& event);
  void Do(const guardian::SendToWorker& effect);
  void Do(const guardian::StartProcess& effect);
  void Do(const guardian::AssignProcess& effect);
  void Do(const guardian::SendToProcess& effect);
  void Do(const guardian::SignalProcess& effect);
  void Do(const guardian::ForgetProcess& effect);
  void Do(const guardian::LimitMemory&) {}
  void Do(const guardian::LockDevices& effect);
  void Do(const guardian::UnlockDevices&) { locked_.clear(); }
  void Do(const guardian::BindMaster& effect);
  void Do(const guardian::CloseMaster&) { listening_ = 0; }
  void Do(const guardian::Sweep& effect);
  void Do(const guardian::HoldSegment& effect);
  void Do(const guardian::ReleaseSegment& effect);
  void Do(const guardian::TakeSecrets&) {}  // they change no decision
  void Do(const guardian::WriteRecord& effect) { files_.newest = effect.newest; }
  void Do(const guardian::WriteExitRecord& effect);
  void Do(const guardian::WriteStoppedRecord&) {}
  void Do(const guardian::LogNote&) {}
  void Do(const guardian::Leave&);

  void Receive(guardian::ProcessId id, const std::string& json, SegmentPtr segment);
  void Ended(guardian::ProcessId id, int exit_code, int signal);
  void BeginTrainer(const ProcessPtr& process);
  void BeginCommand(const ProcessPtr& process, const GuardianLaunch& launch);
  struct Packet {
    std::string json;
    SegmentPtr segment;
    int listens = 0;  // the port of the listening socket that comes along
  };
  void ToProcess(guardian::ProcessId id, Packet packet);
  void Read(const ProcessPtr& process, const Packet& packet);
  void Assigned(const ProcessPtr& process, const Packet& packet);
  static void Park(const ProcessPtr& process, Generation generation);
  void Tick();
  void Settle();

  const JobId job_;
  GuardianFiles& files_;
  const Surroundings with_;
  guardian::GuardianCore core_;
  bool alive_ = true;
  bool ticking_ = false;
  bool looking_ = false;  // at what survived SIGKILL, a while from now
  int depth_ = 0;         // of effects within effects
  std::uint64_t connection_ = 0;
  std::optional<Listener> listener_;
  int listening_ = 0;                // the port of the socket for rank 0; 0: there is none
  std::vector<std::string> locked_;  // devices
  TimePoint last_sent_;
  std::map<guardian::ProcessId, ProcessPtr> processes_;
  std::map<std::string, SegmentPtr> held_;
  SegmentPtr incoming_;  // came with the message or command under way
};

}  // namespace muster::sim
