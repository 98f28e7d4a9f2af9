#include "common/problems/slow_rank.h"

#include <algorithm>
#include <cstddef>

namespace muster {

void SlowRankWatch::Begin(std::int64_t generation, const std::vector<Work>& ranks) {
  generation_ = generation;
  begin_ = ranks;
}

void SlowRankWatch::Forget() {
  suspect_.reset();
  windows_ = 0;
}

void SlowRankWatch::Observe(std::int64_t generation, const std::vector<Work>& ranks) {
  if (generation != generation_ || ranks.size() != begin_.size()) {
    Forget();
    return Begin(generation, ranks);
  }
  if (std::any_of(begin_.begin(), begin_.end(), [](const Work& work) { return work.steps == 0; }))
    return Begin(generation, ranks);
  if (ranks.size() < 2) return;
  std::vector<double> per_step;
  per_step.reserve(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::int64_t steps = ranks[r].steps - begin_[r].steps;
    if (steps < 0) {
      Forget();
      return Begin(generation, ranks);
    }
    if (steps < kSteps) return;
    per_step.push_back((ranks[r].busy_seconds - begin_[r].busy_seconds) /
                       static_cast<double>(steps));
  }
  const auto worst = std::max_element(per_step.begin(), per_step.end());
  const SlowRank slow{static_cast<int>(worst - per_step.begin()), *worst, 0};
  // The lower one of two, since the other may be the slow one.
  const auto middle = per_step.begin() + static_cast<std::ptrdiff_t>((per_step.size() - 1) / 2);
  std::nth_element(per_step.begin(), middle, per_step.end());
  if (*middle * static_cast<double>(ranks[0].steps - begin_[0].steps) < kSeconds) return;
  if (suspect_ && suspect_->rank != slow.rank) Forget();
  if (slow.seconds >= kRatio * *middle) {
    suspect_ = {slow.rank, slow.seconds, *middle};
    windows_ = std::min(windows_ + 1, kWindows);
  } else {
    Forget();
  }
  Begin(generation, ranks);
}

}  // namespace muster
