// Gang: what is known of a job's newest attempt while it is live, beyond its record.
//
// The attempt prepares its nodes, launches its ranks, runs, and is aborted. Each phase holds the
// fields and deadlines that exist in it alone, and is replaced as a whole with the state of the
// record (Enter in transaction.h).
//
// Plain values, owned by JobEntry (state.h) and private to coordinator/control; one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/cuda_stack.h"
#include "common/base/ids.h"
#include "common/wire/messages.h"
#include "coordinator/control/failure.h"
#include "coordinator/domain/records.h"

namespace muster::control {

// One node of a live attempt.
struct GangNode {
  NodeName name;
  bool prepared = false;
  bool quiesced = false;  // no process of the attempt is left there, or none that counts
  bool ahead = false;  // runs a later generation, of which the store does not know; to be released
  std::optional<CudaStack> cuda;  // reported by a node that prepares GPUs
  bool spare = false;             // beside the gang: prepared, without ranks
};

// A gang's nodes by node rank, then its spares. Each message of a node needs the node's entry, so
// they are indexed by name.
class GangNodes {
 public:
  void Add(GangNode node) {
    places_.emplace(node.name, nodes_.size());
    nodes_.push_back(std::move(node));
  }
  void Remove(const NodeName& name) {
    std::erase_if(nodes_, [&](const GangNode& node) { return node.name == name; });
    places_.clear();
    for (const GangNode& node : nodes_) places_.emplace(node.name, places_.size());
  }
  GangNode* Find(const NodeName& name) {  // nullptr: none of them
    const auto place = places_.find(name);
    return place == places_.end() ? nullptr : &nodes_[place->second];
  }

  std::size_t size() const { return nodes_.size(); }
  GangNode& operator[](std::size_t place) { return nodes_[place]; }
  const GangNode& operator[](std::size_t place) const { return nodes_[place]; }
  const GangNode* data() const { return nodes_.data(); }
  auto begin() { return nodes_.begin(); }
  auto end() { return nodes_.end(); }
  auto begin() const { return nodes_.begin(); }
  auto end() const { return nodes_.end(); }

 private:
  std::vector<GangNode> nodes_;
  std::map<NodeName, std::size_t> places_;
};

// Every node is asked to prepare.
struct Preparing {
  static constexpr AttemptState kState = AttemptState::kPreparing;
  static constexpr AttemptEvent kEnteredBy = AttemptEvent::kReserved;
  std::optional<TimePoint> deadline;  // set once the nodes are asked
};

// How far the ranks have come since they were launched.
struct RankReports {
  std::set<int> formed;
  std::set<int> resumed;
  std::optional<TimePoint> all_formed;
  std::optional<TimePoint> all_resumed;
  // The remaining budget of an attempt with parked processes until its first step, and when it is
  // used up. The clock stands still while state is loaded.
  Duration tier_left = Duration::zero();
  std::optional<TimePoint> tier_deadline;
};

// Every rank is to get a process. Those that have one report already.
struct Launching {
  static constexpr AttemptState kState = AttemptState::kLaunching;
  static constexpr AttemptEvent kEnteredBy = AttemptEvent::kPrepared;
  TimePoint deadline;
  std::size_t started = 0;  // all ranks before it have a process, or have had one
  RankReports ranks;
};

// The order to stop at a step boundary.
struct GangStop {
  std::string reason;
  std::optional<TimePoint> deadline;
  // The deadline is the coordinator's own timeout, not one of a request: moved while a checkpoint
  // is written.
  bool may_take_longer = false;
  std::uint64_t saved = 0;  // what Saved (stopping.cc) was when it was checked last
};

// Every rank has a process.
struct Running {
  static constexpr AttemptState kState = AttemptState::kRunning;
  static constexpr AttemptEvent kEnteredBy = AttemptEvent::kStarted;
  std::optional<TimePoint> form_deadline;  // until the ranks have found each other
  std::optional<GangStop> stop;            // once ordered
  RankReports ranks;
};

// What an attempt leaves to the next one: the processes of its survivors.
struct Survivors {
  int next_master_port = 0;  // bound on the master's node for the next gang; 0: none
};

// No process is to be left.
struct Aborting {
  static constexpr AttemptState kState = AttemptState::kAborting;
  static constexpr AttemptEvent kEnteredBy = AttemptEvent::kAbort;
  std::string reason;
  Duration grace = Duration::zero();
  std::optional<Survivors> survivors;      // empty: every process is ended
  std::optional<TimePoint> since;          // empty: before a restart of the coordinator
  std::optional<TimePoint> deadline;       // of the nodes; empty: it has passed
  std::optional<TimePoint> save_deadline;  // of a suspended job's commit record
};

struct Gang {
  GangNodes nodes;
  std::variant<Preparing, Launching, Running, Aborting> phase;

  std::optional<TimePoint> began;  // unknown after a restart of the coordinator
  Step committed_before = 0;       // the job's committed step when it began
  bool first_step = false;         // was finished
  bool finished = false;           // a rank has reported that the training is done
  std::vector<Failure> failures;
  std::map<int, TrainerError> errors;  // by rank
  int trainer_notes = 0;               // that its ranks have sent
  // A reported error waits for its rank's exit, a symptom for its cause; until the abort.
  std::optional<TimePoint> fault_deadline;
  std::set<int> kill_ranks;                         // not to be parked
  std::optional<TimePoint> store_exits_at;          // ranks have ended since the attempt was stored
  std::map<std::string, CheckpointRecord> writing;  // by directory
  std::map<std::string, TimePoint> writing_since;   // at least for those
  std::map<int, Step> failed_saves;                 // by rank, the newest
};

// nullptr: it is in another phase.
template <typename Phase>
Phase* In(Gang& gang) {
  return std::get_if<Phase>(&gang.phase);
}
template <typename Phase>
const Phase* In(const Gang& gang) {
  return std::get_if<Phase>(&gang.phase);
}

inline const GangStop* StopOf(const Gang& gang) {  // nullptr: it is not to stop
  const Running* running = In<Running>(gang);
  return running != nullptr && running->stop ? &*running->stop : nullptr;
}

// nullptr: the attempt is not launched yet, or is aborted.
inline RankReports* ReportsOf(Gang& gang) {
  if (Launching* launching = In<Launching>(gang)) return &launching->ranks;
  if (Running* running = In<Running>(gang)) return &running->ranks;
  return nullptr;
}
inline const RankReports* ReportsOf(const Gang& gang) { return ReportsOf(const_cast<Gang&>(gang)); }

}  // namespace muster::control
