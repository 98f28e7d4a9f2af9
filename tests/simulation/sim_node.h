// SimNode: a machine with its worker, its guardians and its disk. The real worker::Agent; its
// effects are carried out on simulated guardians and files, and what it says crosses the real
// conversions to the wire and back.
//
// The worker dies and is started anew without its guardians; the machine is lost with all of them.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/wire/messages.h"
#include "tests/simulation/sim_guardian.h"
#include "tests/simulation/sim_sampler.h"
#include "worker/agent/agent.h"

namespace muster::sim {

class SimNode {
 public:
  struct Surroundings {
    TrainerContext* trainers = nullptr;
    std::function<std::int64_t()> new_pid;
    std::function<Result<int>()> bind;
    std::function<Status()> preflight;
    std::function<std::shared_ptr<SimGang>(const JobId&, Generation, int)> gang;
    // To the coordinator, on the current stream; dropped where there is none.
    std::function<void(int node, WorkerMessage)> say;
    std::function<void(int node, const Probe&)> probe;
    std::function<void(int node)> handled;
    // A guardian wants a device that another job has.
    std::function<void(std::string what)> two_holders;
    // Before a checkpoint's directory goes.
    std::function<void(const JobId&, const std::string& directory)> removes;
  };

  SimNode(int index, std::string name, int slots, int gpus, Surroundings surroundings);

  int index() const { return index_; }
  const NodeName& name() const { return name_; }
  int slots() const { return slots_; }
  int gpus() const { return static_cast<int>(inventory_.devices.size()); }
  bool machine_up() const { return machine_up_; }
  bool worker_up() const { return agent_ != nullptr; }
  // Its guardians have reported their state, or had time enough for it: it may say Hello.
  bool ready() const;
  const std::map<JobId, std::shared_ptr<SimGuardian>>& guardians() const { return guardians_; }
  // Processes that live here, of any owner.
  const std::vector<ProcessPtr>& processes() const { return processes_; }

  void StartWorker();
  // SIGKILL; guardians and ranks go on.
  void KillWorker();
  void LoseMachine();
  void BootMachine();
  void KillGuardian(const JobId& job);
  // The connection between worker and guardian ends, with all that is under way.
  void BreakLink(const JobId& job);

  // All that a new stream begins with.
  Hello MakeHello() const;
  void Receive(const CoordinatorMessage& message);
  void SampleProgress();
  // Ended processes are forgotten.
  void Sweep();

  std::vector<std::string> ResumePoints(const JobId& job, Generation generation) const;

 private:
  // What the disk knows of a job, for a worker that is started anew.
  struct JobFiles {
    Prepare prepare;
    JobSpec spec;
    bool prepared = false;
    std::map<Generation, std::vector<std::string>> resume;
    GuardianFiles guardian;
  };

  void Decide(const worker::Event& event);
  void Do(const worker::SendToCoordinator& effect);
  void Do(const worker::SendToGuardian& effect);
  void Do(const worker::StartGuardian& effect);
  void Do(const worker::StartPreflight& effect);
  void Do(const worker::StageLaunch& effect);
  void Do(const worker::StartTerminationProof& effect);
  void Do(const worker::ForgetJob& effect);
  void Do(const worker::ScheduleStuckCheck& effect);
  void Do(const worker::CheckStuck& effect);
  void Do(const worker::LogNote&) {}
  void On(const CheckpointCommitted& committed);
  void On(const ScrubCheckpoint& scrub);
  // `again`: to a guardian that was connected to before.
  void Connect(const JobId& job, bool again);
  void KeepSegment(const JobId& job, const GuardianSegment& told, const SegmentPtr& segment);
  void EndUnknown(const JobId& job);
  const JobSpec& WriteRecords(const Prepare& prepare);
  void AddPage(const JobId& job, const GuardianRankStarted& started);
  void OnGuardianGone(const JobId& job);
  void ProveTerminated(const worker::StartTerminationProof& wanted, TimePoint give_up_at);
  void OnGuardianEvent(const JobId& job, const GuardianEvent& event, const SegmentPtr& segment);
  void Send(const WorkerMessage& message);
  // Runs unless the worker has died meanwhile.
  void Later(Duration delay, std::function<void()> action);
  std::vector<std::int64_t> LivingPids(const JobId& job) const;
  Status Lock(const SimGuardian& guardian, const guardian::LockDevices& wanted) const;

  const int index_;
  const NodeName name_;
  const int slots_;
  NodeInventory inventory_;
  const Surroundings with_;
  bool machine_up_ = true;
  int boot_ = 1;
  int instance_ = 0;
  TimePoint started_;
  std::unique_ptr<worker::Agent> agent_;
  std::map<JobId, JobFiles> files_;
  std::map<JobId, std::shared_ptr<SimGuardian>> guardians_;
  std::vector<ProcessPtr> processes_;
  SimSampler sampler_;
  std::vector<ProcessPtr> unfelt_;  // ended with the machine: their peers wait for an answer
  // The worker's duplicates of segments, for a guardian's successor; end with the worker.
  std::map<JobId, std::map<std::string, SegmentPtr>> duplicates_;
  // Between a guardian's Hello and Synced: those that it has named.
  std::map<JobId, std::set<std::string>> replayed_;
  std::map<JobId, TimePoint> to_guardian_;  // keeps the order
};

}  // namespace muster::sim
