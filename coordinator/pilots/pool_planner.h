// PoolPlanner: how many pilot jobs there are to be, and which. Pure: facts and time in, actions
// out.
//
// Supply is nodes that could take a job now or soon: free ones, and those of pilots that wait or
// start. Demand is what the queue lacks, what gangs that shrank lack, what is about to leave, and
// spares. Where demand is larger, a pilot is asked for; what was of no use for the idle timeout is
// drained and given back. A pilot whose time is nearly over is no supply, and what it runs is
// demand: so its replacement is there before its nodes are drained.
//
// Owned by PilotRunner, loop's thread. It remembers since when pilots are idle and how submits
// went, nothing else: made anew, it waits for at most one idle timeout longer. docs/pilots.md tells
// the rules for people.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "coordinator/pilots/pool_config.h"

namespace muster {

enum class PilotPhase {
  kSubmitting,  // not yet known to Slurm, or not known whether
  kPending,
  kRunning,
  kEnding,  // cancelled, or Slurm is tidying up: nothing of it is of use
};

// A pilot that has not ended.
struct PilotFact {
  std::string key;
  PilotPhase phase = PilotPhase::kSubmitting;
  std::vector<std::string> nodes;      // that it runs on
  std::vector<std::string> exclude;    // that it was submitted without
  double seconds_running = 0;          // since Slurm started it
  std::optional<double> seconds_left;  // until Slurm ends it; nothing: no limit
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

// Nodes that a job lacks.
struct PoolNeed {
  std::string why;  // "job 3f9a waits for 2 nodes"
  int nodes = 0;
  bool partly = false;  // some of them help too
  std::vector<std::string> exclude;
};

struct PoolFacts {
  std::vector<PilotFact> pilots;
  std::vector<PoolNodeFact> nodes;
  std::vector<PoolNeed> needs;     // in the order of the queue
  double checkpoint_seconds = 0;   // of the slowest job; 0: not known
  std::vector<std::string> avoid;  // nodes that no pilot is to get
};

struct SubmitPilot {
  std::vector<std::string> exclude;
  std::string why;
};
struct CancelPilot {
  std::string key;
  std::string why;
  std::vector<std::string> bad_nodes;  // that the next ones are not to get
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

  // sbatch was refused, or a pilot ended before any node of it came: the next ones wait.
  void OnFailure(TimePoint now);
  // A pilot's node came: pilots work.
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
