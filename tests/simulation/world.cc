#include "tests/simulation/world.h"

#include <algorithm>
#include <cstdio>

namespace muster::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Of events between two looks at what is not over.
constexpr std::uint64_t kEndsEvery = 256;
constexpr std::size_t kEventsTold = 120;

ControllerOptions MakeControllerOptions(Duration scrub_interval) {
  ControllerOptions options;
  options.retain = seconds(20);  // jobs are archived while others run
  options.scrub_interval = scrub_interval;
  options.cluster = "simulation";
  options.new_token = [drawn = std::make_shared<int>(0)] {
    return "token-" + std::to_string(++*drawn);
  };
  return options;
}

// As many as GPUs; in every third seed, on every second node, one more, with its own dice: slots
// alone do not keep jobs apart there, and the others' fates stay what they were.
int SlotsOf(std::uint64_t seed, int node, int gpus) {
  const bool more = seed % 3 == 0 && Mix(seed, static_cast<std::uint64_t>(node)) % 2 == 0;
  return gpus + (more ? 1 : 0);
}

// In every second seed a slow disk is soon behind.
RuntimeLimits LimitsOf(std::uint64_t seed) {
  if (seed % 2 == 0) return {};
  return {.requests = 4, .uncommitted = 6, .held_back = 8};
}

}  // namespace

World::World(WorldOptions options, Seams seams)
    : options_(options),
      controller_options_(MakeControllerOptions(options.scrub_interval)),
      seams_(std::move(seams)),
      random_(options.seed * 7919 + 1),
      disk_random_(options.seed * 7919 + 2) {
  trainers_.queue = &queue_;
  trainers_.random = &random_;
  trainers_.plans = &plans_;
  trainers_.disks = &disks_;
  trainers_.reachable = [this](int a, int b) { return Reachable(a, b); };
  trainers_.disk_full = [this](const JobId&) { return queue_.now() < disk_full_until_; };
  trainers_.choose_cut = seams_.choose_cut ? seams_.choose_cut : ChooseCut;
  if (seams_.trainers) seams_.trainers(trainers_);

  auto store = seams_.make_store ? seams_.make_store(queue_, disk_random_)
                                 : std::make_unique<SimStore>(queue_, disk_random_);
  SimCoordinator::Callbacks callbacks;
  callbacks.send = [this](const WorkerSend& send) { SendDown(send); };
  callbacks.close = [this](const CloseSession& close) { CloseStream(close.session); };
  callbacks.decided = [this](const std::vector<JobId>& changed) {
    oracle_->AfterCoordinatorEvent(changed);
  };
  callbacks.failed = [this] { CrashCoordinator(seconds(1)); };
  ControllerOptions with_passes = controller_options_;
  if (HasUsers())
    with_passes.on_pass = [this](const SchedulerSnapshot& snapshot, const SchedulePlan& plan,
                                 std::int64_t) { oracle_->AfterPass(snapshot, plan); };
  coordinator_ = std::make_unique<SimCoordinator>(queue_, std::move(store), std::move(with_passes),
                                                  LimitsOf(options.seed), std::move(callbacks));
  oracle_ = std::make_unique<Oracle>(*coordinator_, nodes_, plans_, disks_);
  trainers_.observer.resumed = [this](const SimGang& gang, Step step, const std::string& from) {
    oracle_->Resumed(gang, step, from);
  };
  trainers_.observer.trained = [this](const JobId& job, Step step, Content content) {
    oracle_->Trained(job, step, content);
  };
  trainers_.observer.finished_step = [this](const SimGang& gang, Step step) {
    oracle_->FinishedStep(gang, step);
  };
  trainers_.observer.stopped = [this](const SimGang& gang, Step step) {
    if (CanReport(gang)) oracle_->Stopped(gang, step);
  };
  trainers_.observer.doubled = [this](const SimGang& gang, int rank) {
    oracle_->Doubled(gang, rank);
  };
  trainers_.observer.joins = [this](const SimGang& gang, const SimProcess& process) {
    oracle_->Joins(gang, process);
  };

  // Sizes that differ by factors, not by sums.
  int count = options_.min_nodes;
  while (count < options_.max_nodes && random_.Chance(0.5)) count *= 2;
  count = std::min(count, options_.max_nodes);
  const int gpus = random_.Between(1, 4);
  for (int i = 0; i < count; ++i) {
    SimNode::Surroundings with;
    with.trainers = &trainers_;
    with.new_pid = [this] { return ++next_pid_; };
    with.gang = [this](const JobId& job, Generation generation, int world_size) {
      return GangOf(job, generation, world_size);
    };
    with.say = [this](int node, WorkerMessage message) { SendUp(node, std::move(message)); };
    with.bind = [this]() -> Result<int> {
      if (!calm_ && random_.Chance(0.005)) return Unavailable("the address is gone");
      return ++next_port_;
    };
    with.preflight = [this] {
      if (!calm_ && random_.Chance(0.005)) return Unavailable("the disk does not answer");
      return OkStatus();
    };
    with.probe = [this](int node, const Probe& probe) { AnswerProbe(node, probe); };
    with.handled = [this](int node) { oracle_->AfterNodeEvent(node); };
    with.two_holders = [this](std::string what) {
      if (!result_.violation)
        result_.violation = Violation{"one job has a device", std::move(what)};
    };
    with.removes = [this](const JobId& job, const std::string& directory) {
      oracle_->Removes(job, directory);
    };
    nodes_.push_back(std::make_unique<SimNode>(
        i, "n" + std::to_string(i), SlotsOf(options_.seed, i, gpus), gpus, std::move(with)));
  }
  streams_.resize(static_cast<std::size_t>(count));
  apart_.resize(static_cast<std::size_t>(count));
}

World::~World() = default;

std::shared_ptr<SimGang> World::GangOf(const JobId& job, Generation generation, int world_size) {
  std::shared_ptr<SimGang>& gang = gangs_[{job, generation}];
  if (!gang) gang = std::make_shared<SimGang>(trainers_, job, generation, world_size);
  return gang;
}

bool World::CanReport(const SimGang& gang) const {
  return std::all_of(gang.members().begin(), gang.members().end(),
                     [this](const ProcessPtr& member) {
                       return member->alive() && !StreamOf(member->node).cut_off &&
                              nodes_[static_cast<std::size_t>(member->node)]->worker_up();
                     });
}

void World::GoOnEverywhere() {
  for (const auto& [key, gang] : gangs_) gang->TryGoOn();
}

std::uint64_t World::StateHash() const {
  std::uint64_t hash = coordinator_->store().Hash();
  hash = Mix(hash, static_cast<std::uint64_t>(queue_.now().time_since_epoch().count()));
  for (const auto& node : nodes_) {
    hash = Mix(hash, node->processes().size());
    for (const ProcessPtr& process : node->processes()) {
      hash = Mix(hash, static_cast<std::uint64_t>(process->pid));
      hash = Mix(hash, static_cast<std::uint64_t>(process->state));
      hash = Mix(hash, process->content);
    }
  }
  return hash;
}

void World::Check() {
  if (queue_.ran() % kHashEvery == 0) result_.hashes.push_back(StateHash());
  if (oracle_->violation() && !result_.violation) result_.violation = oracle_->violation();
}

void World::Begin() {
  coordinator_->Start();
  for (int node = 0; node < node_count(); ++node) {
    queue_.After(random_.Delay(milliseconds(0), seconds(2)), [this, node] {
      NodeAt(node).StartWorker();
      TryConnect(node);
      Heartbeat(node);
    });
    queue_.After(random_.Delay(seconds(2), seconds(3)), [this, node] { Sample(node); });
  }
  requests_.resize(static_cast<std::size_t>(options_.jobs));
  if (HasQueues() || HasUsers()) queue_.After(seconds(1), [this] { ApplyQueues(); });
  if (HasUsers()) queue_.After(seconds(1), [this] { ApplyUsers(); });
  for (int i = 0; i < options_.jobs; ++i) SubmitLater(i);
  for (int kind = 0; kind < kFaultKindCount; ++kind) {
    if (random_.Chance(0.5)) enabled_.push_back(static_cast<FaultKind>(kind));
  }
  fault_pause_ = milliseconds(random_.Between(150, 4000));
  queue_.After(seconds(5), [this] { NextFault(); });
  calm_at_ = queue_.now() + options_.faulty;
  queue_.At(calm_at_, [this] { Calm(); });
}

RunResult World::Run() {
  const TimePoint begin = queue_.now();
  Begin();
  while (!result_.violation && queue_.RunOne()) {
    Check();
    if (!calm_ || queue_.ran() % kEndsEvery != 0) continue;
    if (Unfinished().empty()) break;
    CheckThatAllEnds();
  }
  // What was on its way when the last job ended arrives.
  const TimePoint until = queue_.now() + seconds(60);
  while (!result_.violation && queue_.now() < until && queue_.RunOne()) Check();
  if (!result_.violation) oracle_->AtTheEnd();
  Check();
  result_.nodes = node_count();
  result_.jobs = options_.jobs;
  result_.archive_scrubs = coordinator_->store().archive_scrubs();
  if (coordinator_->up()) result_.archived_jobs = coordinator_->controller().archived_jobs();
  result_.stalls = coordinator_->stalls();
  result_.events = queue_.ran();
  result_.virtual_seconds = ToSeconds(queue_.now() - begin);
  if (result_.violation && coordinator_->up()) result_.timeline = Timeline();
  return std::move(result_);
}

std::string World::Timeline() const {
  const auto& events = coordinator_->controller().Events();
  const std::size_t first =
      events.size() > kEventsTold && !options_.trace ? events.size() - kEventsTold : 0;
  std::string timeline;
  for (std::size_t i = first; i < events.size(); ++i) {
    timeline += std::to_string(events[i].unix_ms) + " " + events[i].job.value + " g" +
                std::to_string(events[i].generation) + " " + events[i].kind + ": " +
                events[i].message + "\n";
  }
  return timeline;
}

}  // namespace muster::sim
