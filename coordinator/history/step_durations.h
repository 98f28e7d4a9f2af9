// StepDurations: how long a job's steps took, as percentiles of the newest and of all.
//
// Owned by Histories; pure, one thread; some kilobytes. Of all steps a histogram is kept whose
// buckets are 5 % wide, so a percentile of all is that exact; the newest kRecent are kept as they
// are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster {

struct StepPercentiles {
  std::uint64_t steps = 0;  // that they were made of; 0: they say nothing
  double p50 = 0;           // in seconds
  double p95 = 0;
  double p99 = 0;
};

class StepDurations {
 public:
  static constexpr std::size_t kRecent = 512;
  static constexpr double kLeastSeconds = 1e-4;  // what is shorter counts as that
  static constexpr double kGrowth = 1.05;        // from one bucket to the next
  static constexpr std::size_t kBuckets = 384;   // up to more than three hours

  // `steps` steps were finished of which the last took so long; nothing is known of the others, so
  // they count the same.
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
