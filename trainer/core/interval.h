// Interval: a run of elements, and what two runs have in common.
//
// Shards, tensors, pieces that are read or sent: code that finds elements of one in another
// intersects their intervals. Plain values; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace muster {

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;  // behind the last element

  std::int64_t count() const { return end - begin; }
  bool empty() const { return begin >= end; }

  friend bool operator==(const Interval&, const Interval&) = default;
};

// Empty where they have nothing in common; its count is never negative.
constexpr Interval Intersect(const Interval& a, const Interval& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace muster
