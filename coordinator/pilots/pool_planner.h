// PoolPlanner: how many pilot jobs are needed, and which. Pure: facts and time in, actions out.
//
// Supply is nodes that could take a job now or soon: free ones, and those of pilots that wait or
// start. Demand is what the queue lacks, what gangs that shrank lack, what is about to leave, and
// spares. If demand is larger, a pilot is submitted; one that was unused for the idle timeout is
// drained and cancelled. A pilot whose time is nearly over is no supply, and what it runs is
// demand: so its replacement exists before its nodes are drained.
//
// Owned by PilotRunner, loop's thread. Its only state is since when pilots are idle and how submits
// went: after a restart it waits at most one idle timeout longer. docs/pilots.md has the rules for
// people.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "coordinator/pilots/pool_config.h"

namespace muster {

enum class PilotPhase {
  kSubmitting,  // not yet known to Slurm, or uncertain
  kPending,
  kRunning,
  kEnding,  // cancelled, or Slurm is cleaning up: unusable
};

// A pilot that has not ended.
struct PilotFact {
  std::string key;
  PilotPhase phase = PilotPhase::kSubmitting;
  std::vector<std::string> nodes;      // that it runs on
  std::vector<std::string> exclude;    // that it was submitted without
  double seconds_running = 0;          // since Slurm started it
  std::optional<double> seconds_left;  // until Slurm ends it; empty: no limit
};

enum class PoolNodeState {
  kUsable,
  kLeaving,  // draining or drained
  kBad,      // lost, or quarantined
};

struct PoolNodeFact {
  std::string name;
  PoolNodeState state = PoolNodeState::kUsable;
  bool busy = false;
  std::string pilot;  // that its worker runs in; empty: none
};

// How the reason of a job's need begins, by which its pilots are found again.
inline std::string WhatLacks(const JobId& job) { return "job " + job.value + " lacks "; }

// Nodes that a job lacks.
struct PoolNeed {
  std::string why;  // "job 3f9a lacks 2 nodes"
  int nodes = 0;
  bool partly = false;  // a part of them helps too
  std::vector<std::string> exclude;
};

struct PoolFacts {
  std::vector<PilotFact> pilots;
  std::vector<PoolNodeFact> nodes;
  std::vector<PoolNeed> needs;     // in the order of the queue
  double checkpoint_seconds = 0;   // of the slowest job; 0: unknown
  std::vector<std::string> avoid;  // nodes that no pilot may get
};

struct SubmitPilot {
  std::vector<std::string> exclude;
  std::string why;
};
struct CancelPilot {
  std::string key;
  std::string why;
  std::vector<std::string> bad_nodes;  // that the next ones must not get
};
struct DrainPoolNode {
  std::string node;
  double by_seconds = 0;  // 0: no limit
  std::string why;
};
using PoolAction = std::variant<SubmitPilot, CancelPilot, DrainPoolNode>;

struct PoolPlan {
  std::vector<PoolAction> actions;
  std::string condition;  // why there are fewer pilots than wanted; empty: there are not
};

class PoolPlanner {
 public:
  static constexpr Duration kFirstPause = std::chrono::seconds(5);  // doubles
  static constexpr Duration kLongestPause = std::chrono::minutes(10);

  void SetConfig(const PoolConfig& config) { config_ = config; }
  const PoolConfig& config() const { return config_; }

  PoolPlan Plan(const PoolFacts& facts, TimePoint now);

  // sbatch was refused, or a pilot ended before any of its nodes connected: the next ones wait.
  void OnFailure(TimePoint now);
  // A pilot's node connected: pilots work.
  void OnSuccess() { failures_ = 0, not_before_.reset(); }

 private:
  class Round;

  PoolConfig config_;
  std::map<std::string, TimePoint> idle_since_;  // by pilot
  std::deque<TimePoint> submits_;                // of the last minute
  int failures_ = 0;                             // in a row
  std::optional<TimePoint> not_before_;
};

}  // namespace muster
