// FirstTime: when as many nodes as a gang has are free at the same time.
//
// Used by one pass; one thread.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "coordinator/scheduler/step_function.h"

namespace muster {

// Collects when each node could take its part, by the group that it is in, and when the limits
// allow it.
class FirstTime {
 public:
  // Spans of one node, or of one limit, are apart from each other.
  void AddNode(const TimeSpan& span, std::size_t group);
  void AddLimit(const std::vector<TimeSpan>& spans);
  // Uses up what was added. The first time at which all limits allow it and `nodes` nodes of one
  // group are free.
  std::optional<TimePoint> Find(int nodes) &&;

 private:
  struct Edge {
    TimePoint at;
    int delta;
    std::size_t group;  // kLimit: of a limit
  };
  static constexpr std::size_t kLimit = static_cast<std::size_t>(-1);

  void Add(const TimeSpan& span, std::size_t group);

  std::vector<Edge> edges_;
  int limits_ = 0;
  std::size_t groups_ = 0;
};

}  // namespace muster
