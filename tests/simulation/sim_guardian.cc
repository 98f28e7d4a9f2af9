#include "tests/simulation/sim_guardian.h"

#include <signal.h>

#include <algorithm>

#include "common/base/json.h"

namespace muster::sim {
namespace {

using nlohmann::json;
using std::chrono::microseconds;
using std::chrono::milliseconds;

std::map<std::string, std::string> Variables(const std::vector<std::string>& environment) {
  std::map<std::string, std::string> variables;
  for (const std::string& text : environment) {
    const std::size_t equals = text.find('=');
    variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

}  // namespace

SimGuardian::SimGuardian(JobId job, GuardianFiles& files, Surroundings surroundings)
    : job_(std::move(job)),
      files_(files),
      with_(std::move(surroundings)),
      core_(job_.value, files.newest) {}

void SimGuardian::Connect(Listener listener) {
  ++connection_;
  listener_ = std::move(listener);
  last_sent_ = with_.trainers->queue->now();
  Decide(guardian::WorkerConnected{1});
}

void SimGuardian::Command(std::uint64_t connection, const GuardianCommand& command,
                          SegmentPtr segment) {
  if (!alive_ || connection != connection_) return;
  incoming_ = std::move(segment);
  Decide(guardian::CommandReceived{command});
  incoming_.reset();
}

void SimGuardian::Terminate() {
  if (alive_) Decide(guardian::TerminateRequested{});
}

void SimGuardian::Kill() {
  if (!alive_) return;
  alive_ = false;
  const auto processes = processes_;
  for (const auto& [id, process] : processes) {
    if (!process->unkillable) EndProcess(process, 0, SIGKILL);
  }
  held_.clear();
  locked_.clear();
  EventQueue& queue = *with_.trainers->queue;
  queue.At(std::max(last_sent_, queue.now() + microseconds(200)),
           [self = shared_from_this(), connection = connection_] {
             if (self->connection_ != connection || !self->listener_) return;
             const Listener listener = *std::exchange(self->listener_, std::nullopt);
             listener.closed();
           });
}

// An effect's answer comes before the next event, so effects may be carried out within effects;
// what follows an event is done once, at the end of the outermost.
void SimGuardian::Decide(const guardian::Event& event) {
  CarryOut(event);
  if (depth_ == 0) Settle();
}

void SimGuardian::CarryOut(const guardian::Event& event) {
  ++depth_;
  for (const guardian::Effect& effect : core_.Handle(event, with_.trainers->queue->now())) {
    if (!alive_) break;
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
  --depth_;
}

void SimGuardian::Settle() {
  if (!alive_) return;
  CarryOut(guardian::Tick{});
  if (alive_ && core_.ending() && !ticking_) {
    ticking_ = true;
    with_.trainers->queue->After(guardian::kEndingTick * 4,
                                 [self = shared_from_this()] { self->Tick(); });
  }
  if (alive_ && core_.waits_for_unkillable() && !looking_) {
    looking_ = true;
    with_.trainers->queue->After(guardian::kUnkillableTick, [self = shared_from_this()] {
      self->looking_ = false;
      if (self->alive_) self->Settle();
    });
  }
  with_.handled();
}

void SimGuardian::Tick() {
  ticking_ = false;
  if (alive_) Settle();
}

void SimGuardian::Do(const guardian::SendToWorker& effect) {
  if (!listener_) return;
  SegmentPtr segment;
  if (!effect.segment.empty() && held_.contains(effect.segment)) segment = held_[effect.segment];
  EventQueue& queue = *with_.trainers->queue;
  last_sent_ = std::max(
      last_sent_, queue.now() + with_.trainers->random->Delay(microseconds(30), microseconds(600)));
  queue.At(last_sent_,
           [self = shared_from_this(), event = effect.event, segment, connection = connection_] {
             if (self->connection_ == connection && self->listener_)
               self->listener_->event(event, segment);
           });
}

void SimGuardian::Do(const guardian::StartProcess& effect) {
  auto process = std::make_shared<SimProcess>();
  process->pid = with_.new_pid();
  process->job = job_;
  process->node = with_.node;
  process->devices = effect.launch.devices;
  const guardian::ProcessId id = effect.process;
  std::weak_ptr<SimGuardian> weak = shared_from_this();
  process->pipe.report = [weak, id](const std::string& text, SegmentPtr segment) {
    const auto self = weak.lock();
    if (!self || !self->alive_) return;
    self->with_.trainers->queue->After(microseconds(100), [weak, id, text, segment] {
      if (const auto to = weak.lock()) to->Receive(id, text, segment);
    });
  };
  process->pipe.exited = [weak, id](int exit_code, int signal) {
    const auto self = weak.lock();
    if (!self) return;
    self->with_.trainers->queue->After(microseconds(200), [weak, id, exit_code, signal] {
      if (const auto to = weak.lock()) to->Ended(id, exit_code, signal);
    });
  };
  processes_[id] = process;
  with_.born(process);
  effect.launch.control ? BeginTrainer(process) : BeginCommand(process, effect.launch);
  Decide(guardian::ProcessStarted{id, process->pid});
}

// One that is assigned at once reads that when it is up.
void SimGuardian::BeginTrainer(const ProcessPtr& process) {
  EventQueue& queue = *with_.trainers->queue;
  const Duration start = with_.trainers->random->Delay(milliseconds(120), milliseconds(400));
  process->inbox_at = queue.now() + start + microseconds(1);
  queue.After(start, [process] {
    const auto ready = [process] {
      if (process->state != SimProcess::State::kStarting || process->hung) return;
      process->state = SimProcess::State::kStandby;
      ++process->stores;
      Report(*process, json{{"type", "standby_ready"}, {"generation", 0}}.dump());
    };
    process->stopped ? process->on_continue.push_back(ready) : ready();
  });
}

// It runs for a while and ends; the store runs until it is ended.
void SimGuardian::BeginCommand(const ProcessPtr& process, const GuardianLaunch& launch) {
  process->trainer = false;
  if (launch.rank == kStoreRank) return;
  process->generation = launch.generation;
  process->rank = launch.rank;
  with_.trainers->queue->After(with_.trainers->random->Delay(milliseconds(500), milliseconds(9000)),
                               [process] {
                                 const auto end = [process] { EndProcess(process, 0, 0); };
                                 process->stopped ? process->on_continue.push_back(end) : end();
                               });
}

void SimGuardian::Do(const guardian::AssignProcess& effect) {
  const auto found = processes_.find(effect.process);
  if (found != processes_.end()) found->second->devices = effect.devices;
  ToProcess(effect.process, {effect.message, nullptr, effect.listen ? listening_ : 0});
}

void SimGuardian::Do(const guardian::SendToProcess& effect) {
  const auto held = held_.find(effect.segment);
  if (!effect.segment.empty() && held == held_.end()) return;
  ToProcess(effect.process, {effect.message, held == held_.end() ? nullptr : held->second});
}

void SimGuardian::ToProcess(guardian::ProcessId id, Packet packet) {
  const auto found = processes_.find(id);
  if (found == processes_.end()) return;
  const ProcessPtr process = found->second;
  EventQueue& queue = *with_.trainers->queue;
  process->inbox_at = std::max(process->inbox_at, queue.now() + microseconds(150));
  queue.At(process->inbox_at,
           [self = shared_from_this(), process, packet = std::move(packet)]() mutable {
             if (!process->stopped) return self->Read(process, packet);
             process->on_continue.push_back(
                 [self, process, packet = std::move(packet)] { self->Read(process, packet); });
           });
}

void SimGuardian::Read(const ProcessPtr& process, const Packet& packet) {
  if (!process->alive()) return;
  const json message = json::parse(packet.json);
  const auto type = message.at("type").get<std::string>();
  if (type == "segment") {
    process->given.push_back(packet.segment);
  } else if (process->hung) {
    return;  // its reader knows, and no thread asks it
  } else if (type == "assign") {
    Assigned(process, packet);
  } else if (type == "park") {
    Park(process, message.at("generation").get<Generation>());
  } else if (type == "stop") {
    process->stop_requested = true;
    if (process->waits()) EndProcess(process, 0, 0);
  }
}

void SimGuardian::Park(const ProcessPtr& process, Generation generation) {
  if (process->waits() || process->generation != generation) return;
  ++process->assignment;
  process->state = SimProcess::State::kParked;
  if (const auto gang = process->gang.lock()) gang->Break(process);
  Report(*process, json{{"type", "parked"},
                        {"generation", generation},
                        {"step", std::max<Step>(process->step, 0)}}
                       .dump());
}

void SimGuardian::Assigned(const ProcessPtr& process, const Packet& packet) {
  const json message = json::parse(packet.json);
  const auto variables = Variables(message.at("environment").get<std::vector<std::string>>());
  ++process->assignment;
  process->generation = message.at("generation").get<Generation>();
  process->rank = std::stoi(variables.at("RANK"));
  process->world_size = std::stoi(variables.at("WORLD_SIZE"));
  process->ranks_per_node = std::stoi(variables.at("LOCAL_WORLD_SIZE"));
  process->token = message.at("rendezvous_token").get<std::string>();
  process->master_port = std::stoi(variables.at("MASTER_PORT"));
  process->listens = packet.listens;
  process->stop_requested = false;
  process->joined = process->completed = 0;
  process->state = SimProcess::State::kForming;
  const auto gang = with_.gang(job_, process->generation, process->world_size);
  process->gang = gang;
  gang->Join(process, with_.resume(job_, process->generation));
}

void SimGuardian::Do(const guardian::SignalProcess& effect) {
  const auto found = processes_.find(effect.process);
  if (found == processes_.end()) return;
  const ProcessPtr process = found->second;
  switch (effect.signal) {
    case SIGSTOP: process->stopped = true; break;
    case SIGCONT: ContinueProcess(process); break;
    case SIGKILL:
      if (process->unkillable) break;
      // The group's end is seen a moment later.
      with_.trainers->queue->After(microseconds(300),
                                   [process] { EndProcess(process, 0, SIGKILL); });
      break;
    default:
      if (!process->unkillable && !process->stopped && !process->hung) {
        with_.trainers->queue->After(microseconds(300), [process, signal = effect.signal] {
          EndProcess(process, 0, signal);
        });
      }
  }
}

void SimGuardian::Do(const guardian::ForgetProcess& effect) { processes_.erase(effect.process); }

// It cannot fail halfway: devices that it keeps it has already.
void SimGuardian::Do(const guardian::LockDevices& effect) {
  const Status status = with_.lock(*this, effect);
  if (status.ok()) locked_ = effect.devices;
  Decide(guardian::DevicesLocked{status});
}

void SimGuardian::Do(const guardian::BindMaster&) {
  const Result<int> port = with_.bind();
  listening_ = port.ok() ? *port : 0;
  Decide(guardian::MasterBound{port});
}

void SimGuardian::Do(const guardian::Sweep& effect) {
  guardian::SweepResult result;
  result.none_left = true;
  for (const auto& [id, process] : processes_) {
    if (!process->alive()) continue;
    if (std::find(effect.keep.begin(), effect.keep.end(), id) != effect.keep.end()) continue;
    result.none_left = false;
    if (effect.kill || !effect.keep.empty()) result.left.push_back(process->pid);
    if (effect.kill) Do(guardian::SignalProcess{id, SIGKILL});
  }
  Decide(guardian::Swept{result});
}

void SimGuardian::Do(const guardian::HoldSegment& effect) {
  if (incoming_) held_[effect.name] = incoming_;
}

void SimGuardian::Do(const guardian::ReleaseSegment& effect) { held_.erase(effect.name); }

void SimGuardian::Do(const guardian::WriteExitRecord& effect) {
  files_.exits[{effect.exited.generation, effect.exited.rank}] = effect.exited;
}

void SimGuardian::Do(const guardian::Leave&) { Kill(); }

void SimGuardian::Receive(guardian::ProcessId id, const std::string& text, SegmentPtr segment) {
  if (!alive_) return;
  incoming_ = std::move(segment);
  Decide(guardian::MessageReceived{
      .process = id, .json = text, .has_descriptor = incoming_ != nullptr});
  incoming_.reset();
}

void SimGuardian::Ended(guardian::ProcessId id, int exit_code, int signal) {
  if (!alive_) return;
  guardian::ProcessEnd end;
  end.exit.exit_code = exit_code;
  end.exit.signal = signal;
  Decide(guardian::ProcessEnded{id, end});
}

}  // namespace muster::sim
