// QueueLoads: what each queue has, now and later, beside its guarantee, its ceiling and its share.
//
// A queue's share is its usage per weight: what its gangs had, decayed to a reference time, so that
// time passing changes no order. A gang is charged in advance when a pass considers it.
//
// Values of one pass; one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "common/base/clock.h"
#include "coordinator/queues/queue_tree.h"
#include "coordinator/scheduler/step_function.h"

namespace muster {

// What a gang of that size is charged for a second: a GPU counts 1, a slot without one 0.1.
double CostOf(const Amounts& amounts);

// What a gang of the queue has from now on.
struct RunningLoad {
  int queue = 0;
  Amounts amounts;
  TimePoint ends = kNever;
};

// For how long a gang is charged before it has had its nodes that long.
inline constexpr std::chrono::seconds kChargedAhead = std::chrono::hours(1);

class QueueLoads {
 public:
  // `usage` is that of each queue of the tree itself, without its children, in cost-seconds;
  // missing ones are 0. The tree outlives it.
  QueueLoads(const QueueTree& tree, const std::vector<double>& usage, TimePoint now);

  // At first, for all gangs that run.
  void HoldRunning(const std::vector<RunningLoad>& gangs);
  // A gang of the queue has that much in [from, to).
  void Hold(int queue, const Amounts& amounts, TimePoint from, TimePoint to);
  void Release(int queue, const Amounts& amounts, TimePoint from, TimePoint to);
  // A gang that runs for that long is considered.
  void Charge(int queue, const Amounts& amounts, Duration length);

  // Whether the queue, or one above it, stays within its guarantee with that much more now. For a
  // gang of GPUs those alone count.
  bool IsEntitled(int queue, const Amounts& more) const;
  // The queue, or the one above it, whose ceiling that would exceed in [from, to); -1: none.
  int OverCeiling(int queue, const Amounts& more, TimePoint from, TimePoint to) const;
  // From when on, after now, a gang that starts now would exceed a ceiling; now: at once.
  TimePoint OverFrom(int queue, const Amounts& more) const;
  // The most that the queue has at a time of [from, to).
  Amounts Peak(int queue, TimePoint from, TimePoint to) const;
  // When a gang of that length could start as far as ceilings go: a list for each queue that has a
  // ceiling.
  std::vector<std::vector<TimeSpan>> Starts(int queue, const Amounts& more, Duration length) const;
  // The queue will have that much more, or less, when gangs that give way have gone and the jobs
  // they give way to have started.
  void Expect(int queue, const Amounts& amounts);
  // Whether the queue, or one above it that is not above `from`, stays within its guarantee then
  // with that much more.
  bool MayClaim(int queue, int from, const Amounts& more) const;
  // Whether the queue `from`, and those above it that are not above `queue`, keep their guarantees
  // then with that much less.
  bool MayGive(int from, int queue, const Amounts& less) const;

  Amounts Used(int queue) const { return loads_[At(queue)].used.first(); }
  double Share(int queue) const;  // usage per weight
  const QueueSpec& Spec(int queue) const { return tree_.queues[At(queue)]; }

 private:
  friend class CeilingExcess;
  struct Load {
    StepFunction<Amounts> used;  // later ones only of a queue with a ceiling
    Amounts expected;            // beside what is used now
    double usage = 0;
  };

  static std::size_t At(int queue) { return static_cast<std::size_t>(queue); }
  bool HasCeiling(int queue) const;
  bool IsAbove(int queue, int other) const;  // or the same
  Amounts Expected(int queue) const;

  const QueueTree& tree_;
  TimePoint now_;
  std::vector<Load> loads_;
};

// How far a gang would be over the ceilings of its queue and of those above it, each as a part of
// what it has, summed, as the loads are now; and how far if another gang ended. Both cost little
// however often loads change.
class CeilingExcess {
 public:
  CeilingExcess() = default;  // within all
  // A gang of the queue that has `more` in [from, to).
  CeilingExcess(const QueueLoads& loads, int queue, const Amounts& more, TimePoint from,
                TimePoint to);

  double value() const { return value_; }  // 0: it is within them
  // If a gang of that queue, which ends at `until`, had `less` from before the other's start.
  double Without(int queue, const Amounts& less, TimePoint until) const;

 private:
  // A queue with a ceiling, and what it has in steps: the most of a step and of those before it,
  // and of it and those behind it.
  struct Step {
    TimePoint from;
    Amounts before, after;
  };
  struct Level {
    int queue = 0;
    std::vector<Step> steps = {};
  };

  double Over(const Level& level, const Amounts& peak) const;

  const QueueLoads* loads_ = nullptr;
  Amounts more_;
  TimePoint from_, to_;
  std::vector<Level> levels_;
  double value_ = 0;
};

}  // namespace muster
