#include "tests/simulation/sim_node.h"

#include <signal.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/base/version.h"
#include "common/job_spec/parse.h"
#include "common/wire/codec.h"

namespace muster::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// As in worker/agent.
constexpr Duration kAdoptionBudget = std::chrono::seconds(3);
constexpr Duration kProofBudget = std::chrono::seconds(5);
constexpr Duration kStuckPause = std::chrono::seconds(5);
constexpr Duration kProgressInterval = milliseconds(900);

}  // namespace

SimNode::SimNode(int index, std::string name, int slots, int gpus, Surroundings surroundings)
    : index_(index), name_{std::move(name)}, slots_(slots), with_(std::move(surroundings)) {
  for (int i = 0; i < gpus; ++i)
    inventory_.devices.push_back({.id = name_.value + "-gpu" + std::to_string(i), .fake = true});
}

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
  worker::LaunchContext context{.trainer_path = "/muster-trainer"};
  for (const Device& device : inventory_.devices)
    context.devices.push_back({.device = device, .cuda_name = device.id, .gpu = device.id});
  agent_ = std::make_unique<worker::Agent>(std::move(context), "/jobs");
  std::vector<JobId> found;
  std::vector<JobId> unknown;
  for (const auto& [job, files] : files_) (files.prepared ? found : unknown).push_back(job);
  for (const JobId& job : unknown) EndUnknown(job);
  for (const JobId& job : found) {
    JobFiles& files = files_.at(job);
    const auto guardian = guardians_.find(job);
    const bool alive = guardian != guardians_.end() && guardian->second->alive();
    Prepare prepare = files.prepare;
    bool launched = files.resume.contains(prepare.generation);
    if (files.guardian.newest > prepare.generation) {
      prepare.generation = files.guardian.newest;
      launched = false;
    }
    Decide(worker::JobFound{
        .prepare = prepare, .spec = files.spec, .launched = launched, .guardian_alive = alive});
    if (alive) Connect(job, true);
  }
}

// Without its records no worker can take the job over.
void SimNode::EndUnknown(const JobId& job) {
  if (const auto guardian = guardians_.extract(job)) guardian.mapped()->Kill();
  files_.erase(job);
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
  replayed_.clear();
  sampler_.Clear();
  for (const auto& [job, guardian] : guardians_) guardian->Disconnect();
}

void SimNode::LoseMachine() {
  KillWorker();
  machine_up_ = false;
  const auto processes = std::exchange(processes_, {});
  for (const ProcessPtr& process : processes) {
    process->unkillable = false;
    if (!process->alive()) continue;
    unfelt_.push_back(process);
    EndProcess(process, 0, SIGKILL, PeersFeel::kLater);
  }
  const auto guardians = std::exchange(guardians_, {});
  for (const auto& [job, guardian] : guardians) guardian->Kill();
  files_.clear();
}

void SimNode::BootMachine() {
  if (machine_up_) return;
  machine_up_ = true;
  ++boot_;
  for (const ProcessPtr& process : std::exchange(unfelt_, {})) {
    if (const auto gang = process->gang.lock()) gang->Break(process);
  }
}

void SimNode::KillGuardian(const JobId& job) {
  const auto found = guardians_.find(job);
  if (found != guardians_.end()) found->second->Kill();
}

void SimNode::BreakLink(const JobId& job) {
  const auto found = guardians_.find(job);
  if (found == guardians_.end() || !worker_up()) return;
  found->second->Disconnect();
  Later(milliseconds(10), [this, job] {
    const auto guardian = guardians_.find(job);
    if (guardian == guardians_.end()) return;
    guardian->second->alive() ? Connect(job, true) : OnGuardianGone(job);
  });
}

void SimNode::Sweep() {
  std::erase_if(processes_, [](const ProcessPtr& process) { return !process->alive(); });
}

// --- with the coordinator ---

Hello SimNode::MakeHello() const {
  const Hello hello{.protocol_version = kProtocols.max,
                    .min_protocol_version = kProtocols.min,
                    .version = kVersion,
                    .node = name_,
                    .address = "10.0.0." + std::to_string(index_),
                    .host_id = "host-" + std::to_string(boot_),
                    .slots = slots_,
                    .pid = 1,
                    .metrics_port = 9000 + index_,
                    .instance = std::to_string(instance_),
                    .failure_domain = name_.value,
                    .allows_faults = true,
                    .hosted = agent_->Hosted(),
                    .inventory = inventory_};
  const Result<Hello> received = FromProto(ToProto(hello));
  MUSTER_CHECK(received.ok(), received.status().ToString());
  return *received;
}

void SimNode::Send(const WorkerMessage& message) {
  Result<WorkerMessage> converted = FromProto(ToProto(message));
  MUSTER_CHECK(converted.ok(), converted.status().ToString());
  with_.say(index_, *std::move(converted));
}

void SimNode::Receive(const CoordinatorMessage& message) {
  if (!worker_up()) return;
  if (const auto* committed = std::get_if<CheckpointCommitted>(&message)) return On(*committed);
  if (const auto* scrub = std::get_if<ScrubCheckpoint>(&message)) return On(*scrub);
  if (const auto* probe = std::get_if<Probe>(&message)) return with_.probe(index_, *probe);
  const Result<CoordinatorMessage> wire = FromProto(ToProto(message));
  MUSTER_CHECK(wire.ok(), wire.status().ToString());
  std::visit(
      [this](const auto& m) {
        using Message = std::decay_t<decltype(m)>;
        if constexpr (std::is_constructible_v<worker::Event, const Message&>) Decide(m);
      },
      *wire);
  with_.handled(index_);
}

void SimNode::On(const CheckpointCommitted& committed) {
  const Duration disk = with_.trainers->random->Delay(milliseconds(2), milliseconds(80));
  Later(disk, [this, committed] {
    CheckpointDisk& all = (*with_.trainers->disks)[committed.job];
    const auto found = all.find(committed.checkpoint.directory);
    ManifestWritten written{.job = committed.job,
                            .generation = committed.generation,
                            .directory = committed.checkpoint.directory};
    if (found != all.end()) {
      found->second.manifest = true;
      for (const std::string& directory : committed.prune) {
        with_.removes(committed.job, directory);
        all.erase(directory);
        written.pruned.push_back(directory);
      }
    } else {
      written.error = "its directory is gone";
    }
    with_.say(index_, written);
    with_.handled(index_);
  });
}

// The first reading of a checkpoint may take longer than training needs for the next few.
void SimNode::On(const ScrubCheckpoint& scrub) {
  Random& random = *with_.trainers->random;
  const bool is_slow = scrub.at_once && random.Chance(0.1);
  const Duration disk = is_slow ? random.Delay(milliseconds(500), std::chrono::seconds(20))
                                : random.Delay(milliseconds(2), milliseconds(80));
  Later(disk, [this, scrub] {
    const CheckpointDisk& all = (*with_.trainers->disks)[scrub.job];
    const auto found = all.find(scrub.checkpoint.directory);
    const std::vector<ShardInfo>& shards = scrub.checkpoint.shards;
    const bool whole = found != all.end() &&
                       std::all_of(shards.begin(), shards.end(), [&](const ShardInfo& shard) {
                         return found->second.shards.contains(shard.rank);
                       });
    with_.say(index_,
              CheckpointScrubbed{.scrub_id = scrub.scrub_id,
                                 .job = scrub.job,
                                 .directory = scrub.checkpoint.directory,
                                 .outcome = whole ? ScrubOutcome::kWhole : ScrubOutcome::kMissing,
                                 .file = "",
                                 .detail = whole ? "" : "a shard is missing"});
    with_.handled(index_);
  });
}

void SimNode::SampleProgress() {
  if (!worker_up()) return;
  const TimePoint now = with_.trainers->queue->now();
  for (Progress& progress : sampler_.Sample(now, kProgressInterval))
    with_.say(index_, std::move(progress));
}

// --- the agent's effects ---

void SimNode::Decide(const worker::Event& event) {
  for (const worker::Effect& effect : agent_->Handle(event)) {
    if (!worker_up()) return;
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
}

void SimNode::Do(const worker::SendToCoordinator& effect) { Send(effect.message); }

void SimNode::Do(const worker::SendToGuardian& effect) {
  const auto found = guardians_.find(effect.job);
  if (found == guardians_.end()) return;
  EventQueue& queue = *with_.trainers->queue;
  TimePoint& last = to_guardian_[effect.job];
  last = std::max(last,
                  queue.now() + with_.trainers->random->Delay(microseconds(30), microseconds(600)));
  queue.At(last, [guardian = found->second, connection = found->second->connection(),
                  command = effect.command] { guardian->Command(connection, command); });
}

void SimNode::Do(const worker::StartGuardian& effect) {
  const JobId job = effect.job;
  Later(with_.trainers->random->Delay(milliseconds(1), milliseconds(8)), [this, job] {
    if (guardians_.contains(job) && guardians_.at(job)->alive()) return;
    SimGuardian::Surroundings with;
    with.trainers = with_.trainers;
    with.node = index_;
    with.new_pid = with_.new_pid;
    with.bind = with_.bind;
    with.gang = with_.gang;
    with.resume = [this](const JobId& id, Generation generation) {
      return ResumePoints(id, generation);
    };
    with.born = [this](const ProcessPtr& process) { processes_.push_back(process); };
    with.lock = [this](const SimGuardian& guardian, const guardian::LockDevices& wanted) {
      return Lock(guardian, wanted);
    };
    with.handled = [this] { with_.handled(index_); };
    guardians_[job] = std::make_shared<SimGuardian>(job, files_[job].guardian, std::move(with));
    Connect(job, false);
    SimGuardian& guardian = *guardians_.at(job);
    for (const auto& [name, segment] : duplicates_[job]) {
      guardian.Command(guardian.connection(), GuardianHold{name}, segment);
    }
  });
}

// As the kernel: a device is locked while a guardian or a process has its lock. Only processes that
// survived SIGKILL may stand in the way of their own job.
Status SimNode::Lock(const SimGuardian& guardian, const guardian::LockDevices& wanted) const {
  const auto shared = [](const std::vector<std::string>& a, const std::vector<std::string>& b) {
    return std::ranges::find_first_of(a, b) != a.end();
  };
  const auto is_own = [&](const ProcessPtr& process) {
    return std::ranges::any_of(guardian.processes(),
                               [&](const auto& entry) { return entry.second == process; });
  };
  for (const auto& [job, other] : guardians_)
    if (other->alive() && job != guardian.job() && shared(other->locked(), wanted.devices))
      with_.two_holders(guardian.job().value + " wants a device of job " + job.value);
  for (const ProcessPtr& process : processes_) {
    const bool lives = process->alive() && shared(process->devices, wanted.devices);
    if (lives && process->job != guardian.job())
      with_.two_holders(guardian.job().value + " wants a device of a process of job " +
                        process->job.value);
    if (lives && (!is_own(process) || shared(process->devices, wanted.anew)))
      return AlreadyExists("process " + std::to_string(process->pid) + " has a device");
  }
  return OkStatus();
}

void SimNode::Connect(const JobId& job, bool again) {
  if (again) replayed_[job].clear();
  const auto current = [this, instance = instance_] {
    return instance == instance_ && worker_up();
  };
  guardians_.at(job)->Connect(
      {[this, job, current](const GuardianEvent& event, const SegmentPtr& segment) {
         if (current()) OnGuardianEvent(job, event, segment);
       },
       [this, job, current] {
         if (current()) OnGuardianGone(job);
       }});
}

void SimNode::OnGuardianEvent(const JobId& job, const GuardianEvent& event,
                              const SegmentPtr& segment) {
  if (const auto* told = std::get_if<GuardianSegment>(&event)) KeepSegment(job, *told, segment);
  if (const auto* started = std::get_if<GuardianRankStarted>(&event)) AddPage(job, *started);
  // The last finished step is reported before the end.
  if (const auto* exited = std::get_if<GuardianRankExited>(&event)) {
    sampler_.EndRank(job, exited->rank);
    SampleProgress();
  }
  if (std::holds_alternative<GuardianSynced>(event)) {
    if (const auto replayed = replayed_.extract(job)) {
      std::erase_if(duplicates_[job],
                    [&](const auto& entry) { return !replayed.mapped().contains(entry.first); });
    }
  }
  Decide(worker::GuardianReported{job, event});
  with_.handled(index_);
}

// As SegmentKeeper.
void SimNode::KeepSegment(const JobId& job, const GuardianSegment& told,
                          const SegmentPtr& segment) {
  if (told.dropped) {
    duplicates_[job].erase(told.name);
  } else if (segment) {
    duplicates_[job][told.name] = segment;
    const auto replayed = replayed_.find(job);
    if (replayed != replayed_.end()) replayed->second.insert(told.name);
  }
}

void SimNode::AddPage(const JobId& job, const GuardianRankStarted& started) {
  for (const ProcessPtr& process : processes_) {
    if (process->pid != started.pid || !process->trainer) continue;
    sampler_.AddPage(job, started.generation, started.rank, process);
  }
}

void SimNode::OnGuardianGone(const JobId& job) {
  guardians_.erase(job);
  replayed_.erase(job);
  Decide(worker::GuardianLost{job, "it ended"});
  with_.handled(index_);
}

void SimNode::Do(const worker::StartPreflight& effect) {
  const Prepare prepare = effect.prepare;
  Later(with_.trainers->random->Delay(milliseconds(1), milliseconds(10)), [this, prepare] {
    worker::PreflightResult result;
    result.status = with_.preflight();
    result.retryable = true;
    if (result.status.ok()) result.spec = WriteRecords(prepare);
    Decide(worker::PreflightDone{
        .job = prepare.job, .generation = prepare.generation, .result = result});
    with_.handled(index_);
  });
}

const JobSpec& SimNode::WriteRecords(const Prepare& prepare) {
  Result<JobSpec> spec = ParseJobSpec(prepare.spec_yaml);
  MUSTER_CHECK(spec.ok(), spec.status().ToString());
  JobFiles& files = files_[prepare.job];
  files.prepare = prepare;
  files.spec = *std::move(spec);
  files.prepared = true;
  return files.spec;
}

void SimNode::Do(const worker::StageLaunch& effect) {
  const Launch launch = effect.launch;
  Later(with_.trainers->random->Delay(microseconds(200), milliseconds(2)), [this, effect, launch] {
    files_[launch.job].prepare = effect.prepare;
    std::vector<std::string>& resume = files_[launch.job].resume[launch.generation];
    resume.clear();
    for (const CheckpointInfo& each : launch.resume) resume.push_back(each.directory);
    Decide(worker::LaunchStaged{launch, OkStatus()});
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

void SimNode::Do(const worker::StartTerminationProof& effect) {
  Later(with_.trainers->random->Delay(milliseconds(2), milliseconds(30)),
        [this, effect] { ProveTerminated(effect, with_.trainers->queue->now() + kProofBudget); });
}

void SimNode::ProveTerminated(const worker::StartTerminationProof& wanted, TimePoint give_up_at) {
  const std::vector<ProcessPtr> processes = processes_;
  for (const ProcessPtr& process : processes) {
    if (process->job == wanted.job && !process->unkillable) EndProcess(process, 0, SIGKILL);
  }
  Sweep();
  if (!LivingPids(wanted.job).empty() && with_.trainers->queue->now() < give_up_at) {
    return Later(milliseconds(100),
                 [this, wanted, give_up_at] { ProveTerminated(wanted, give_up_at); });
  }
  std::vector<RankExited> records;
  for (const auto& [key, exited] : files_[wanted.job].guardian.exits) {
    if (key.first != wanted.generation) continue;
    records.push_back({.job = wanted.job,
                       .generation = wanted.generation,
                       .rank = exited.rank,
                       .end = exited.end});
  }
  Decide(worker::ProvedGone{
      .job = wanted.job, .records = records, .unkillable_pids = LivingPids(wanted.job)});
  with_.handled(index_);
}

void SimNode::Do(const worker::ForgetJob& effect) {
  const JobId job = effect.job;
  Later(milliseconds(2), [this, job] {
    guardians_.erase(job);
    sampler_.EndJob(job);
    files_.erase(job);
    duplicates_.erase(job);
    Decide(worker::Forgotten{job});
    with_.handled(index_);
  });
}

void SimNode::Do(const worker::ScheduleStuckCheck& effect) {
  Later(kStuckPause, [this, job = effect.job] {
    Decide(worker::StuckDue{job});
    with_.handled(index_);
  });
}

void SimNode::Do(const worker::CheckStuck& effect) {
  Later(milliseconds(1), [this, effect] {
    const std::vector<std::int64_t> living = LivingPids(effect.job);
    std::vector<std::int64_t> ended;
    for (const std::int64_t pid : effect.pids)
      if (std::find(living.begin(), living.end(), pid) == living.end()) ended.push_back(pid);
    Decide(worker::StuckSeen{effect.job, ended});
    with_.handled(index_);
  });
}

}  // namespace muster::sim
