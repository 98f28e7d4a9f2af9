#include "tests/simulation/sim_node.h"

#include <signal.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/base/version.h"
#include "common/job_spec/parse.h"
#include "coordinator/service/conversions.h"
#include "worker/service/conversions.h"

namespace muster::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kGuardianPort = 4000;
constexpr Duration kAdoptionBudget = std::chrono::seconds(10);

const char* PhaseOf(const SimProcess& process) {
  switch (process.state) {
    case SimProcess::State::kForming: return "forming";
    case SimProcess::State::kLoading: return "loading";
    case SimProcess::State::kParked: return "parked";
    case SimProcess::State::kTraining: return "forward";
    default: return "starting";
  }
}

}  // namespace

SimNode::SimNode(int index, std::string name, int slots, Surroundings surroundings)
    : index_(index), name_{std::move(name)}, slots_(slots), with_(std::move(surroundings)) {}

void SimNode::Later(Duration delay, std::function<void()> action) {
  with_.trainers->queue->After(delay, [this, instance = instance_, action = std::move(action)] {
    if (instance == instance_ && worker_up()) action();
  });
}

// --- life and death ---

void SimNode::StartWorker() {
  if (!machine_up_ || worker_up()) return;
  ++instance_;
  started_ = with_.trainers->queue->now();
  agent_ = std::make_unique<worker::Agent>(worker::LaunchContext{.trainer_path = "/muster-trainer"},
                                           "/jobs");
  std::vector<JobId> found;
  for (const auto& [job, files] : files_) {
    if (files.prepared) found.push_back(job);
  }
  for (const JobId& job : found) {
    JobFiles& files = files_.at(job);
    const auto guardian = guardians_.find(job);
    const bool alive = guardian != guardians_.end() && guardian->second->alive();
    worker::Prepare prepare = files.prepare;
    bool launched = files.resume.contains(prepare.generation);
    if (files.guardian.newest > prepare.generation) {
      prepare.generation = files.guardian.newest;
      launched = false;
    }
    CarryOut(agent_->Adopt(prepare, files.spec, launched, alive));
    if (alive) Connect(job);
  }
}

bool SimNode::ready() const {
  return worker_up() &&
         (agent_->AllSettled() || with_.trainers->queue->now() > started_ + kAdoptionBudget);
}

void SimNode::KillWorker() {
  if (!worker_up()) return;
  ++instance_;
  agent_.reset();
  duplicates_.clear();
  for (const auto& [job, guardian] : guardians_) guardian->Disconnect();
}

void SimNode::LoseMachine() {
  KillWorker();
  machine_up_ = false;
  const auto guardians = std::exchange(guardians_, {});
  for (const auto& [job, guardian] : guardians) guardian->Kill(true);
  const auto processes = std::exchange(processes_, {});
  for (const ProcessPtr& process : processes) {
    process->unkillable = false;
    EndProcess(process, 0, SIGKILL);
  }
  files_.clear();
}

void SimNode::BootMachine() {
  if (machine_up_) return;
  machine_up_ = true;
  ++boot_;
}

void SimNode::KillGuardian(const JobId& job) {
  const auto found = guardians_.find(job);
  if (found == guardians_.end()) return;
  const std::shared_ptr<SimGuardian> guardian = found->second;
  guardians_.erase(found);
  guardian->Disconnect();
  guardian->Kill();
  Later(milliseconds(1), [this, job] { CarryOut(agent_->OnGuardianLost(job, "it was killed")); });
}

void SimNode::Sweep() {
  std::erase_if(processes_, [](const ProcessPtr& process) { return !process->alive(); });
}

// --- with the coordinator ---

Hello SimNode::MakeHello() const {
  const worker::WorkerIdentity identity{.node = name_.value,
                                        .address = "10.0.0." + std::to_string(index_),
                                        .host_id = "host-" + std::to_string(boot_),
                                        .slots = slots_,
                                        .pid = 1,
                                        .metrics_port = 9000 + index_,
                                        .instance = std::to_string(instance_),
                                        .failure_domain = name_.value,
                                        .allows_faults = true};
  const Result<Hello> hello = FromProto(worker::MakeHello(identity, agent_->Hosted()).hello());
  MUSTER_CHECK(hello.ok(), hello.status().ToString());
  return *hello;
}

void SimNode::Tell(const worker::WorkerMessage& message) {
  const auto wire = worker::ToProto(message);
  if (!wire) return;  // a report that only the guardian understands
  Result<muster::WorkerMessage> converted = FromProto(*wire);
  MUSTER_CHECK(converted.ok(), converted.status().ToString());
  with_.say(index_, *std::move(converted));
}

void SimNode::Receive(const CoordinatorMessage& message) {
  if (!worker_up()) return;
  if (const auto* committed = std::get_if<CheckpointCommitted>(&message)) return On(*committed);
  if (const auto* scrub = std::get_if<ScrubCheckpoint>(&message)) return On(*scrub);
  if (const auto* probe = std::get_if<Probe>(&message)) return with_.probe(index_, *probe);
  const auto wire = worker::FromProto(ToProto(message));
  if (!wire) return;
  std::visit(
      [this](const auto& m) {
        using Message = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<Message, worker::Prepare>) {
          CarryOut(agent_->OnPrepare(m));
        } else if constexpr (std::is_same_v<Message, worker::Launch>) {
          CarryOut(agent_->OnLaunch(m));
        } else if constexpr (std::is_same_v<Message, worker::Abort>) {
          CarryOut(agent_->OnAbort(m));
        } else if constexpr (std::is_same_v<Message, worker::Release>) {
          CarryOut(agent_->OnRelease(m));
        } else if constexpr (std::is_same_v<Message, worker::Stop>) {
          CarryOut(agent_->OnStop(m));
        }
      },
      *wire);
  with_.handled(index_);
}

void SimNode::On(const CheckpointCommitted& committed) {
  const Duration disk = with_.trainers->random->Delay(milliseconds(2), milliseconds(80));
  Later(disk, [this, committed] {
    CheckpointDisk& all = (*with_.trainers->disks)[committed.job_id];
    const auto found = all.find(committed.checkpoint.directory);
    ManifestWritten written{committed.job_id, committed.checkpoint.directory, true, ""};
    if (found == all.end() ||
        static_cast<int>(found->second.shards.size()) != found->second.world_size) {
      written.ok = false;
      written.error = "a shard is missing";
    } else {
      found->second.manifest = true;
      for (const std::string& directory : committed.prune) all.erase(directory);
    }
    with_.say(index_, written);
    with_.handled(index_);
  });
}

void SimNode::On(const ScrubCheckpoint& scrub) {
  const Duration disk = with_.trainers->random->Delay(milliseconds(2), milliseconds(80));
  Later(disk, [this, scrub] {
    const CheckpointDisk& all = (*with_.trainers->disks)[scrub.job_id];
    const auto found = all.find(scrub.checkpoint.directory);
    const bool whole = found != all.end() &&
                       static_cast<int>(found->second.shards.size()) == found->second.world_size;
    with_.say(index_, CheckpointScrubbed{scrub.scrub_id, scrub.job_id, scrub.checkpoint.directory,
                                         whole ? ScrubOutcome::kWhole : ScrubOutcome::kMissing, "",
                                         whole ? "" : "a shard is missing"});
    with_.handled(index_);
  });
}

void SimNode::SampleProgress() {
  if (!worker_up()) return;
  for (const auto& [job, guardian] : guardians_) {
    std::map<Generation, Progress> by_generation;
    for (const auto& [id, process] : guardian->processes()) {
      if (!process->alive() || process->generation == 0) continue;
      Progress& progress = by_generation[process->generation];
      progress.job_id = job;
      progress.generation = process->generation;
      RankProgress rank;
      rank.rank = process->rank;
      rank.step = std::max<Step>(process->step, 0);
      rank.phase = PhaseOf(*process);
      rank.process_state = process->stopped ? "T" : "S";
      rank.stores = process->stores;
      const auto finished = static_cast<std::uint64_t>(rank.step);
      rank.collectives.push_back({.group = "world",
                                  .enqueued = process->collectives,
                                  .started = process->collectives,
                                  .completed = std::min(process->collectives, finished)});
      progress.ranks.push_back(std::move(rank));
    }
    for (auto& [generation, progress] : by_generation) with_.say(index_, std::move(progress));
  }
}

// --- the agent's effects ---

void SimNode::CarryOut(const worker::Effects& effects) {
  for (const worker::Effect& effect : effects) {
    if (!worker_up()) return;
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
}

void SimNode::Do(const worker::SendToCoordinator& effect) { Tell(effect.message); }

void SimNode::Do(const worker::SendToGuardian& effect) {
  const auto found = guardians_.find(effect.job);
  if (found == guardians_.end()) return;
  EventQueue& queue = *with_.trainers->queue;
  TimePoint& last = to_guardian_[effect.job];
  last = std::max(last,
                  queue.now() + with_.trainers->random->Delay(microseconds(30), microseconds(600)));
  queue.At(last,
           [guardian = found->second, command = effect.command] { guardian->Command(command); });
}

void SimNode::Do(const worker::StartGuardian& effect) {
  const JobId job = effect.job;
  Later(with_.trainers->random->Delay(milliseconds(1), milliseconds(8)), [this, job] {
    if (guardians_.contains(job) && guardians_.at(job)->alive()) return;
    SimGuardian::Surroundings with;
    with.trainers = with_.trainers;
    with.node = index_;
    with.new_pid = with_.new_pid;
    with.new_port = [this] { return kGuardianPort + index_; };
    with.gang = with_.gang;
    with.resume = [this](const JobId& id, Generation generation) {
      return ResumePoints(id, generation);
    };
    with.born = [this](const ProcessPtr& process) { processes_.push_back(process); };
    with.handled = [this] { with_.handled(index_); };
    guardians_[job] = std::make_shared<SimGuardian>(job, files_[job].guardian, std::move(with));
    Connect(job);
    for (const auto& [name, segment] : duplicates_[job]) {
      guardians_.at(job)->Command(GuardianHold{name}, segment);
    }
  });
}

void SimNode::Connect(const JobId& job) {
  guardians_.at(job)->Connect(
      [this, job, instance = instance_](const GuardianEvent& event, const SegmentPtr& segment) {
        if (instance == instance_ && worker_up()) OnGuardianEvent(job, event, segment);
      });
}

void SimNode::OnGuardianEvent(const JobId& job, const GuardianEvent& event,
                              const SegmentPtr& segment) {
  if (const auto* held = std::get_if<GuardianSegment>(&event)) {
    if (held->dropped) {
      duplicates_[job].erase(held->name);
    } else if (segment) {
      duplicates_[job][held->name] = segment;
    }
  }
  const auto guardian = guardians_.find(job);
  if (guardian != guardians_.end() && !guardian->second->alive()) {
    guardians_.erase(guardian);
    return CarryOut(agent_->OnGuardianLost(job, "it ended"));
  }
  CarryOut(agent_->OnGuardianEvent(job, event));
  with_.handled(index_);
}

void SimNode::Do(const worker::StartPreflight& effect) {
  const worker::Prepare prepare = effect.prepare;
  Later(with_.trainers->random->Delay(milliseconds(1), milliseconds(10)), [this, prepare] {
    worker::PreflightResult result;
    const Result<JobSpec> spec = ParseJobSpec(prepare.spec_yaml);
    MUSTER_CHECK(spec.ok(), spec.status().ToString());
    result.spec = *spec;
    JobFiles& files = files_[prepare.job];
    files.prepare = prepare;
    files.spec = *spec;
    files.prepared = true;
    CarryOut(agent_->OnPreflight(prepare.job, prepare.generation, result));
    with_.handled(index_);
  });
}

void SimNode::Do(const worker::StageLaunch& effect) {
  const worker::Launch launch = effect.launch;
  Later(with_.trainers->random->Delay(microseconds(200), milliseconds(2)), [this, launch] {
    std::vector<std::string>& resume = files_[launch.job].resume[launch.generation];
    resume.clear();
    for (const worker::CheckpointInfo& each : launch.resume) resume.push_back(each.directory);
    CarryOut(agent_->OnLaunchStaged(launch, OkStatus()));
    with_.handled(index_);
  });
}

std::vector<std::string> SimNode::ResumePoints(const JobId& job, Generation generation) const {
  const auto files = files_.find(job);
  if (files == files_.end()) return {};
  const auto found = files->second.resume.find(generation);
  return found == files->second.resume.end() ? std::vector<std::string>() : found->second;
}

std::vector<std::int64_t> SimNode::LivingPids(const JobId& job) const {
  std::vector<std::int64_t> pids;
  for (const ProcessPtr& process : processes_) {
    if (process->job == job && process->alive()) pids.push_back(process->pid);
  }
  return pids;
}

void SimNode::Do(const worker::StartGoneProof& effect) {
  const JobId job = effect.job;
  const Generation generation = effect.generation;
  Later(with_.trainers->random->Delay(milliseconds(2), milliseconds(30)), [this, job, generation] {
    for (const ProcessPtr& process : processes_) {
      if (process->job == job && !process->unkillable) EndProcess(process, 0, SIGKILL);
    }
    Sweep();
    std::vector<worker::RankExited> records;
    for (const auto& [key, exited] : files_[job].guardian.exits) {
      if (key.first != generation) continue;
      records.push_back({.job = job,
                         .generation = generation,
                         .rank = exited.rank,
                         .exit = exited.exit,
                         .node_stopped = exited.node_stopped,
                         .ended = exited.ended});
    }
    CarryOut(agent_->OnProvedGone(job, records, LivingPids(job)));
    with_.handled(index_);
  });
}

void SimNode::Do(const worker::ForgetJob& effect) {
  const JobId job = effect.job;
  Later(milliseconds(2), [this, job] {
    guardians_.erase(job);
    files_.erase(job);
    duplicates_.erase(job);
    CarryOut(agent_->OnForgotten(job));
    with_.handled(index_);
  });
}

void SimNode::Do(const worker::LookAtStuckLater& effect) {
  Later(seconds(5), [this, job = effect.job] {
    CarryOut(agent_->OnStuckDue(job));
    with_.handled(index_);
  });
}

void SimNode::Do(const worker::LookAtStuck& effect) {
  Later(milliseconds(1), [this, effect] {
    const std::vector<std::int64_t> living = LivingPids(effect.job);
    std::vector<std::int64_t> ended;
    for (const std::int64_t pid : effect.pids)
      if (std::find(living.begin(), living.end(), pid) == living.end()) ended.push_back(pid);
    CarryOut(agent_->OnStuckSeen(effect.job, ended));
    with_.handled(index_);
  });
}

}  // namespace muster::sim
