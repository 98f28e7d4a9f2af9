// CheckpointClock: how long it takes from an order to a committed checkpoint, measured on every
// checkpoint that a job writes, also on those that nobody has ordered.
//
// An order that comes while a step is computed is obeyed when that step is done. So the time of a
// checkpoint begins when the step before its own was finished: an order given then, at the worst
// moment, would have led to it. What the coordinator hears late, by a tenth of a second or so,
// makes the time longer or shorter by that.
//
// Owned by a JobEntry; one thread. Bounded: it keeps the times of at most kMost steps.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "common/base/clock.h"
#include "common/base/ids.h"

namespace muster {

class CheckpointClock {
 public:
  static constexpr std::size_t kMost = 1200;
  // Between two steps whose times are kept; of quicker ones the first.
  static constexpr Duration kApart = std::chrono::milliseconds(500);

  // A new attempt: it may begin at an earlier step.
  void Begin() { seen_.clear(); }
  // The step was finished. Steps rise.
  void StepSeen(Step step, TimePoint at);
  // In seconds. Nothing: no step before it was seen in this attempt.
  std::optional<double> Committed(Step step, TimePoint at);

 private:
  struct Seen {
    Step step = 0;
    TimePoint at;
  };
  std::deque<Seen> seen_;
};

}  // namespace muster
