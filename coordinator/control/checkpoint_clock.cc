#include "coordinator/control/checkpoint_clock.h"

#include <iterator>

namespace muster {

void CheckpointClock::StepSeen(Step step, TimePoint at) {
  if (!seen_.empty() && at - seen_.back().at < kApart) return;
  if (seen_.size() >= kMost) seen_.erase(seen_.begin());
  seen_.push_back({step, at});
}

std::optional<double> CheckpointClock::Committed(Step step, TimePoint at) {
  // Checkpoints are committed in the order of their steps: older times are not needed again.
  std::ptrdiff_t older = 0;
  while (older + 1 < std::ssize(seen_) && seen_[older + 1].step < step) ++older;
  seen_.erase(seen_.begin(), seen_.begin() + older);
  if (seen_.empty() || seen_.front().step >= step) return std::nullopt;
  return ToSeconds(at - seen_.front().at);
}

}  // namespace muster
