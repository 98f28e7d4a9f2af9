// CheckpointClock: how long it takes from an order to a committed checkpoint, measured on every
// checkpoint that a job writes, whether or not it was ordered.
//
// An order that arrives while a step is computed is carried out when that step is done. So the time
// of a checkpoint begins when the step before it was finished: an order at that moment, the worst
// one, would have led to it. A delay in the reports, about a tenth of a second, makes the time
// longer or shorter by that much.
//
// Owned by a JobEntry; one thread. Bounded: it keeps the times of at most kMost steps.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"

namespace muster {

class CheckpointClock {
 public:
  static constexpr std::size_t kMost = 1200;
  // Minimum time between two steps whose times are kept; the first of several quicker steps is
  // kept.
  static constexpr Duration kApart = std::chrono::milliseconds(500);

  // A new attempt: it may begin at an earlier step.
  void Begin() { seen_.clear(); }
  // The step was finished. Steps only increase.
  void StepSeen(Step step, TimePoint at);
  // In seconds. Empty: no step before it was seen in this attempt.
  std::optional<double> Committed(Step step, TimePoint at);

 private:
  struct Seen {
    Step step = 0;
    TimePoint at;
  };
  std::vector<Seen> seen_;  // a deque takes half a kilobyte for each job that has none
};

}  // namespace muster
