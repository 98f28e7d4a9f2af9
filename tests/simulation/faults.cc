// Of World: what goes wrong.
#include <algorithm>
#include <iterator>

#include "tests/simulation/world.h"

namespace muster::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

}  // namespace

const char* Name(FaultKind kind) {
  static constexpr const char* kNames[] = {"kill_rank",
                                           "stop_rank",
                                           "hang_rank",
                                           "exit_rank",
                                           "kill_guardian",
                                           "kill_worker",
                                           "lose_machine",
                                           "crash_coordinator",
                                           "pause_coordinator",
                                           "break_stream",
                                           "break_link",
                                           "partition",
                                           "split_peers",
                                           "slow_disk",
                                           "full_disk",
                                           "unkillable",
                                           "drain",
                                           "cancel",
                                           "failed_disk"};
  static_assert(std::size(kNames) == kFaultKindCount);
  return kNames[static_cast<int>(kind)];
}

void World::NextFault() {
  if (calm_) return;
  if (!enabled_.empty()) Cause(random_.Any(enabled_));
  queue_.After(random_.Delay(fault_pause_ / 4, fault_pause_ * 2), [this] { NextFault(); });
}

ProcessPtr World::AnyRank() {
  // From a random node on, the first that has one.
  const int from = random_.Pick(node_count());
  for (int i = 0; i < node_count(); ++i) {
    const SimNode& node = *nodes_[static_cast<std::size_t>((from + i) % node_count())];
    std::vector<ProcessPtr> ranks;
    for (const ProcessPtr& process : node.processes()) {
      if (process->alive() && !process->unkillable) ranks.push_back(process);
    }
    if (!ranks.empty()) return random_.Any(ranks);
  }
  return nullptr;
}

void World::CrashCoordinator(Duration down) {
  if (!coordinator_->up()) return;
  coordinator_->Crash();
  oracle_->AfterCrash();
  for (int node = 0; node < node_count(); ++node) EndStream(node, StreamEnd::kCoordinatorDied);
  queue_.After(down, [this] {
    if (!coordinator_->up()) coordinator_->Start();
  });
}

void World::StopForAWhile(const ProcessPtr& rank) {
  rank->stopped = true;
  queue_.After(random_.Delay(seconds(1), seconds(40)), [rank] { ContinueProcess(rank); });
}

void World::KillWorker(int node) {
  oracle_->HolderFault(node);
  NodeAt(node).KillWorker();
  EndStream(node, StreamEnd::kWorkerDied);
  queue_.After(random_.Delay(milliseconds(100), seconds(25)), [this, node] {
    NodeAt(node).StartWorker();
    TryConnect(node);
  });
}

void World::LoseMachine(int node) {
  oracle_->HolderFault(node);
  NodeAt(node).LoseMachine();
  EndStream(node, StreamEnd::kMachineLost);
  queue_.After(random_.Delay(seconds(2), seconds(60)), [this, node] {
    NodeAt(node).BootMachine();
    NodeAt(node).StartWorker();
    TryConnect(node);
  });
}

void World::Partition(int node) {
  oracle_->HolderFault(node);
  CutOff(node, true);
  queue_.After(random_.Delay(milliseconds(200), seconds(40)),
               [this, node] { CutOff(node, false); });
}

void World::SplitFromPeers(int node) {
  oracle_->HolderFault(node);
  apart_[static_cast<std::size_t>(node)] = true;
  queue_.After(random_.Delay(milliseconds(200), seconds(40)), [this, node] {
    apart_[static_cast<std::size_t>(node)] = false;
    GoOnEverywhere();
  });
}

void World::DrainForAWhile(int node) {
  DrainRequested drain;
  drain.node = NodeAt(node).name();
  if (random_.Chance(0.5)) drain.by_seconds = random_.Between(1, 20);
  coordinator_->Ask(drain, [](const Reply&) {});
  if (random_.Chance(0.3)) return;  // until the calm
  queue_.After(random_.Delay(seconds(1), seconds(40)), [this, node] { Undrain(node); });
}

void World::Undrain(int node) {
  UndrainRequested undrain;
  undrain.node = NodeAt(node).name();
  coordinator_->Ask(undrain, [](const Reply&) {});
}

void World::Cause(FaultKind kind) {
  ++result_.faults[kind];
  const int any = random_.Pick(node_count());
  const ProcessPtr rank = AnyRank();
  const int where = rank ? rank->node : any;
  switch (kind) {
    case FaultKind::kKillRank:
      if (rank) EndProcess(rank, 0, 9);
      return;
    case FaultKind::kExitRank:
      if (rank) EndProcess(rank, 1, 0);
      return;
    case FaultKind::kStopRank:
      if (rank) StopForAWhile(rank);
      return;
    case FaultKind::kHangRank:
      if (rank && rank->trainer) rank->hung = true;  // a command is its user's
      return;
    case FaultKind::kUnkillable:
      if (rank) rank->unkillable = rank->stopped = true;
      return;
    case FaultKind::kKillGuardian:
      oracle_->HolderFault(where);
      if (rank) NodeAt(where).KillGuardian(rank->job);
      return;
    case FaultKind::kKillWorker: return KillWorker(where);
    case FaultKind::kLoseMachine: return LoseMachine(where);
    case FaultKind::kCrashCoordinator:
      return CrashCoordinator(random_.Delay(milliseconds(100), seconds(20)));
    case FaultKind::kPauseCoordinator:
      coordinator_->Pause();
      queue_.After(random_.Delay(milliseconds(100), seconds(15)),
                   [this] { coordinator_->Continue(); });
      return;
    case FaultKind::kBreakStream: return EndStream(any, StreamEnd::kTorn);
    case FaultKind::kBreakLink:
      if (rank) NodeAt(where).BreakLink(rank->job);
      return;
    case FaultKind::kPartition: return Partition(random_.Chance(0.7) ? where : any);
    case FaultKind::kSplitPeers: return SplitFromPeers(random_.Chance(0.7) ? where : any);
    case FaultKind::kSlowDisk:
      coordinator_->store().SlowUntil(queue_.now() + random_.Delay(milliseconds(100), seconds(5)));
      return;
    case FaultKind::kFullDisk:
      disk_full_until_ = queue_.now() + random_.Delay(seconds(1), seconds(20));
      return;
    case FaultKind::kFailedDisk: return coordinator_->store().FailNext(true);
    case FaultKind::kDrain: return DrainForAWhile(random_.Chance(0.7) ? where : any);
    case FaultKind::kCancel: {
      const int number = random_.Pick(static_cast<int>(requests_.size()));
      if (random_.Chance(0.2)) AskCancel(number);
      return;
    }
  }
}

// Nothing fails any more, and what was broken is whole again.
void World::Calm() {
  calm_ = true;
  idle_since_ = queue_.now();
  const auto since = queue_.now().time_since_epoch();
  oracle_->Calm(std::chrono::duration_cast<milliseconds>(since).count());
  if (!coordinator_->up()) coordinator_->Start();
  if (coordinator_->paused()) coordinator_->Continue();
  coordinator_->store().FailNext(false);
  disk_full_until_ = queue_.now();
  apart_.assign(apart_.size(), false);
  for (int node = 0; node < node_count(); ++node) CalmNode(node);
  GoOnEverywhere();
  UndrainAll();
  if (options_.seed % 4 == 2) ResumeAll();
}

// Some may be refused as long as their nodes are lost.
void World::UndrainAll() {
  bool drained = false;
  for (const NodeView& node : coordinator_->controller().Nodes()) {
    const bool is = node.record->state == NodeState::kDraining ||
                    node.record->state == NodeState::kDrained || !node.record->drain_reason.empty();
    drained = drained || is;
    if (is) Undrain(IndexOf(node.record->name));
  }
  if (drained) queue_.After(seconds(2), [this] { UndrainAll(); });
}

void World::CalmNode(int index) {
  CutOff(index, false);
  SimNode& node = NodeAt(index);
  bool stuck = false;
  const std::vector<ProcessPtr> processes = node.processes();
  for (const ProcessPtr& process : processes) {
    ContinueProcess(process);
    stuck = stuck || process->unkillable;
  }
  // Nothing else ends what is stuck in the kernel.
  if (stuck) {
    oracle_->HolderFault(index);
    node.LoseMachine();
    EndStream(index, StreamEnd::kMachineLost);
  }
  node.BootMachine();
  node.StartWorker();
  TryConnect(index);
}

}  // namespace muster::sim
