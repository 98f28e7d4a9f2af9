// PassRecord: what a pass has left at each turn of a job in its queue. Nothing before a turn
// depends on what the job asks for, so that a pass over the same snapshot with one more job, or
// with another request of a job, comes to that turn with the same; it need not be made again.
//
// A record holds a copy of the nodes for each change that jobs in queues cause, kKeptStates at
// most: while one pass follows the other there are few, since what they decide is done by then.
//
// Filled by one pass, then const: any thread. It points into the snapshot, which outlives it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "coordinator/scheduler/gang_choice.h"
#include "coordinator/scheduler/gang_request.h"
#include "coordinator/scheduler/queue_loads.h"
#include "coordinator/scheduler/running_gang.h"

namespace muster {

struct SchedulerSnapshot;

// The turn of a probe: a job that a pass is asked about. What it would decide, for many variants of
// the job at once, follows from what it has left. Valid during the call.
struct Turn {
  const GangRequest& probe;
  // The phase takes only what stays within a guarantee, by these loads.
  bool entitled = false;
  const QueueLoads& guaranteed;
  const QueueLoads& loads;
  const PlannedNodes& nodes;
  MatchTable& matches;
  // A gang that starts now may delay promises: later phases have some, or some do not hold anyway.
  bool endangers_promises = false;
  std::span<const RunningGang* const> gangs;  // that may be its victims
  int planned = 0;                            // jobs that wait with a start, or collect
};
// Whether the probe needs no turn in a later phase of its class.
using AtTurn = std::function<bool(const Turn&)>;

// What a pass decides by, beside the jobs that are left.
struct PassState {
  PlannedNodes nodes;
  QueueLoads loads;
  std::vector<const RunningGang*> gangs = {};  // that may be victims
  std::map<JobId, Amounts> claimants = {};     // that gangs give way to, and what they will have
  int planned = 0;                             // jobs that wait with a start, or collect
  bool collecting = false;
};

// In which order jobs of a class are considered, queue by queue.
void SortForTurns(std::vector<const GangRequest*>& requests);

class PassRecord {
 public:
  static constexpr std::size_t kKeptStates = 16;

  explicit PassRecord(const SchedulerSnapshot& snapshot) : snapshot_(snapshot) {}
  const SchedulerSnapshot& snapshot() const { return snapshot_; }

  // --- the pass ---

  // Queues begin to take turns: all jobs that wait in them, in their order.
  void BeginPhase(int class_value, bool entitled, bool endangers_promises, int queues,
                  const std::vector<const GangRequest*>& order);
  // From the next turn on.
  void Keep(const PassState& state);
  // No job has victims from the next turn on, whether there are some or not.
  void EndVictims() { victims_until_ = std::min(victims_until_, next_); }
  void TakeTurn(std::size_t place) { phases_.back().turns[place] = next_++; }
  // That of a job which would be the last of its queue.
  void TakeLastTurn(int queue) { phases_.back().last[static_cast<std::size_t>(queue)] = next_++; }

  // --- what would be ---

  // Asks the probes at their turns, as far as the record has them, and adds those that need no
  // other one to `answered`. `own`: the snapshot's request of their job; nullptr: it has none.
  void Ask(const GangRequest* own, const std::vector<GangRequest>& probes, const AtTurn& at_turn,
           std::set<const GangRequest*>& answered) const;

  struct Considered {
    const PassState& left;
    bool entitled = false;
    bool has_victims = false;         // gangs may give way to it
    bool endangers_promises = false;  // if anything is taken there, or jobs have another order
    bool is_settled = false;          // no job in a queue takes anything from then on
  };
  // When a job would be considered that the snapshot has not; nothing: the record does not have it.
  std::optional<Considered> WhenAdded(const GangRequest& job) const;

 private:
  using Number = std::uint32_t;  // of a turn
  static constexpr Number kNoTurn = std::numeric_limits<Number>::max();

  struct Phase {
    int class_value = 0;
    bool entitled = false;
    bool endangers_promises = false;
    std::vector<const GangRequest*> order;
    std::vector<Number> turns;  // of each of `order`
    std::vector<Number> last;   // by queue: of a job behind all others
    Number first = 0;           // turn
    Number changed_until = 0;   // no turn from that one on changes anything
  };
  struct Kept {
    Number from = 0;
    PassState state;
  };
  // Where the pass considered a job.
  struct Place {
    std::size_t phase = 0;
    Number turn = 0;
  };

  Number TurnIn(const Phase& phase, const GangRequest& request) const;
  std::optional<Place> PlaceOf(const GangRequest& own) const;
  bool Has(std::size_t phase, Number turn, const std::optional<Place>& own) const;
  const PassState& At(Number turn) const;
  std::span<const RunningGang* const> GangsAt(Number turn, const PassState& state) const;

  const SchedulerSnapshot& snapshot_;
  std::vector<Phase> phases_;
  std::deque<Kept> kept_;
  Number next_ = 0;
  Number kept_until_ = kNoTurn;
  Number victims_until_ = kNoTurn;
};

}  // namespace muster
