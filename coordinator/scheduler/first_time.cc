#include "coordinator/scheduler/first_time.h"

#include <algorithm>

namespace muster {

void FirstTime::Add(const TimeSpan& span, std::size_t group) {
  edges_.push_back({span.from, 1, group});
  if (span.to != kNever) edges_.push_back({span.to, -1, group});
}

void FirstTime::AddNode(const TimeSpan& span, std::size_t group) {
  groups_ = std::max(groups_, group + 1);
  Add(span, group);
}

void FirstTime::AddLimit(const std::vector<TimeSpan>& spans) {
  ++limits_;
  for (const TimeSpan& span : spans) Add(span, kLimit);
}

// Most are found long before the last edge: a heap gives the edges in order as far as they are
// needed.
std::optional<TimePoint> FirstTime::Find(int nodes) && {
  const auto later = [](const Edge& a, const Edge& b) { return a.at > b.at; };
  std::ranges::make_heap(edges_, later);
  std::vector<int> free(groups_, 0);
  int allowing = 0;
  int complete = 0;  // groups with as many nodes
  while (!edges_.empty()) {
    const Edge edge = edges_.front();
    std::ranges::pop_heap(edges_, later);
    edges_.pop_back();
    if (edge.group == kLimit) {
      allowing += edge.delta;
    } else {
      int& n = free[edge.group];
      complete -= n >= nodes ? 1 : 0;
      n += edge.delta;
      complete += n >= nodes ? 1 : 0;
    }
    const bool all_of_time = edges_.empty() || edges_.front().at != edge.at;
    if (all_of_time && allowing == limits_ && complete > 0) return edge.at;
  }
  return std::nullopt;
}

}  // namespace muster
