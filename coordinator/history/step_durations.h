// StepDurations: how long a job's steps took, as percentiles of the newest and of all.
//
// Owned by Histories; pure, one thread; some kilobytes. All steps are kept as a histogram with
// buckets 5 % wide, so percentiles of all have that precision; the newest kRecent are kept exactly.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster {

struct StepPercentiles {
  std::uint64_t steps = 0;  // number of steps; 0: no percentiles
  double p50 = 0;           // in seconds
  double p95 = 0;
  double p99 = 0;
};

class StepDurations {
 public:
  static constexpr std::size_t kRecent = 512;
  static constexpr double kLeastSeconds = 1e-4;  // shorter durations count as this
  static constexpr double kGrowth = 1.05;        // from one bucket to the next
  static constexpr std::size_t kBuckets = 384;   // up to more than three hours

  // `steps` steps were finished and the last one took this long; the durations of the others are
  // unknown, so they count the same.
  void Add(double seconds, std::uint64_t steps = 1);

  StepPercentiles Recent() const;
  StepPercentiles All() const;

 private:
  std::vector<float> recent_;
  std::size_t next_ = 0;  // place of the oldest, once all are taken
  std::array<std::uint32_t, kBuckets> buckets_ = {};
  std::uint64_t steps_ = 0;
};

}  // namespace muster
