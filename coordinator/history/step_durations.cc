#include "coordinator/history/step_durations.h"

#include <algorithm>
#include <cmath>

namespace muster {
namespace {

// How many of `count` values lie at or below that percentile.
std::uint64_t RankOf(double quantile, std::uint64_t count) {
  const auto rank = static_cast<std::uint64_t>(std::ceil(quantile * static_cast<double>(count)));
  return std::max<std::uint64_t>(1, rank);
}

std::size_t BucketOf(double seconds) {
  if (!(seconds > StepDurations::kLeastSeconds)) return 0;
  const double place =
      std::log(seconds / StepDurations::kLeastSeconds) / std::log(StepDurations::kGrowth);
  return std::min(StepDurations::kBuckets - 1, static_cast<std::size_t>(place) + 1);
}

// In the middle of a bucket, as ratios go.
double SecondsOf(std::size_t bucket) {
  return StepDurations::kLeastSeconds *
         std::pow(StepDurations::kGrowth, static_cast<double>(bucket) - 0.5);
}

}  // namespace

void StepDurations::Add(double seconds, std::uint64_t steps) {
  if (!std::isfinite(seconds) || seconds <= 0 || steps == 0) return;
  buckets_[BucketOf(seconds)] +=
      static_cast<std::uint32_t>(std::min<std::uint64_t>(steps, 1u << 20));
  steps_ += std::min<std::uint64_t>(steps, 1u << 20);
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(steps, kRecent); ++i) {
    if (recent_.size() < kRecent) {
      recent_.push_back(static_cast<float>(seconds));
    } else {
      recent_[next_] = static_cast<float>(seconds);
      next_ = (next_ + 1) % kRecent;
    }
  }
}

StepPercentiles StepDurations::Recent() const {
  if (recent_.empty()) return {};
  std::vector<float> sorted = recent_;
  std::sort(sorted.begin(), sorted.end());
  const auto at = [&](double quantile) {
    return static_cast<double>(sorted[RankOf(quantile, sorted.size()) - 1]);
  };
  return {sorted.size(), at(0.5), at(0.95), at(0.99)};
}

StepPercentiles StepDurations::All() const {
  if (steps_ == 0) return {};
  const auto at = [&](double quantile) {
    const std::uint64_t rank = RankOf(quantile, steps_);
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      below += buckets_[i];
      if (below >= rank) return SecondsOf(i);
    }
    return SecondsOf(kBuckets - 1);
  };
  return {steps_, at(0.5), at(0.95), at(0.99)};
}

}  // namespace muster
