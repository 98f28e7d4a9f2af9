// Of World: what goes wrong.
#include <algorithm>

#include "tests/simulation/world.h"

namespace muster::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

}  // namespace

const char* Name(FaultKind kind) {
  static constexpr const char* kNames[kFaultKindCount] = {
      "kill_rank",         "stop_rank",    "hang_rank",    "exit_rank",
      "kill_guardian",     "kill_worker",  "lose_machine", "crash_coordinator",
      "pause_coordinator", "break_stream", "partition",    "slow_disk",
      "full_disk",         "unkillable",   "drain",        "cancel"};
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
  for (int node = 0; node < node_count(); ++node) {
    Stream& stream = streams_[static_cast<std::size_t>(node)];
    if (stream.session == 0) continue;
    stream.session = 0;
    queue_.After(random_.Delay(milliseconds(50), milliseconds(1000)),
                 [this, node] { TryConnect(node); });
  }
  queue_.After(down, [this] {
    if (!coordinator_->up()) coordinator_->Start();
  });
}

void World::Cause(FaultKind kind) {
  ++result_.faults[kind];
  SimNode& node = AnyNode();
  const int index = node.index();
  const ProcessPtr rank = AnyRank();
  switch (kind) {
    case FaultKind::kKillRank:
      if (rank) EndProcess(rank, 0, 9);
      return;
    case FaultKind::kExitRank:
      if (rank) EndProcess(rank, 1, 0);
      return;
    case FaultKind::kStopRank:
      if (!rank) return;
      rank->stopped = true;
      queue_.After(random_.Delay(seconds(1), seconds(40)), [rank] {
        rank->stopped = false;
        if (const auto gang = rank->gang.lock()) gang->TryGoOn();
      });
      return;
    case FaultKind::kHangRank:
      if (rank) rank->hung = true;
      return;
    case FaultKind::kUnkillable:
      if (!rank) return;
      rank->unkillable = true;
      rank->stopped = true;
      return;
    case FaultKind::kKillGuardian: {
      oracle_->HolderFault();
      if (rank) nodes_[static_cast<std::size_t>(rank->node)]->KillGuardian(rank->job);
      return;
    }
    case FaultKind::kKillWorker: {
      oracle_->HolderFault();
      const int where = rank ? rank->node : index;
      nodes_[static_cast<std::size_t>(where)]->KillWorker();
      BreakStream(where);
      queue_.After(random_.Delay(milliseconds(100), seconds(25)), [this, where] {
        nodes_[static_cast<std::size_t>(where)]->StartWorker();
        TryConnect(where);
      });
      return;
    }
    case FaultKind::kLoseMachine: {
      oracle_->HolderFault();
      const int where = rank ? rank->node : index;
      nodes_[static_cast<std::size_t>(where)]->LoseMachine();
      BreakStream(where);
      queue_.After(random_.Delay(seconds(2), seconds(60)), [this, where] {
        nodes_[static_cast<std::size_t>(where)]->BootMachine();
        nodes_[static_cast<std::size_t>(where)]->StartWorker();
        TryConnect(where);
      });
      return;
    }
    case FaultKind::kCrashCoordinator:
      return CrashCoordinator(random_.Delay(milliseconds(100), seconds(20)));
    case FaultKind::kPauseCoordinator:
      coordinator_->Pause();
      queue_.After(random_.Delay(milliseconds(100), seconds(15)),
                   [this] { coordinator_->Continue(); });
      return;
    case FaultKind::kBreakStream: return BreakStream(index);
    case FaultKind::kPartition: {
      oracle_->HolderFault();
      const int where = rank && random_.Chance(0.7) ? rank->node : index;
      CutOff(where, true);
      queue_.After(random_.Delay(milliseconds(200), seconds(40)),
                   [this, where] { CutOff(where, false); });
      return;
    }
    case FaultKind::kSlowDisk:
      coordinator_->store().SlowUntil(queue_.now() + random_.Delay(milliseconds(100), seconds(5)));
      return;
    case FaultKind::kFullDisk:
      disk_full_until_ = queue_.now() + random_.Delay(seconds(1), seconds(20));
      return;
    case FaultKind::kDrain: return;
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
  if (!coordinator_->up()) coordinator_->Start();
  if (coordinator_->paused()) coordinator_->Continue();
  for (int index = 0; index < node_count(); ++index) {
    CutOff(index, false);
    SimNode& node = *nodes_[static_cast<std::size_t>(index)];
    bool stuck = false;
    for (const ProcessPtr& process : node.processes()) {
      process->stopped = false;
      stuck = stuck || process->unkillable;
    }
    // Nothing else ends what is stuck in the kernel.
    if (stuck) {
      oracle_->HolderFault();
      node.LoseMachine();
      BreakStream(index);
    }
    node.BootMachine();
    node.StartWorker();
    TryConnect(index);
  }
  GoOnEverywhere();
}

}  // namespace muster::sim
