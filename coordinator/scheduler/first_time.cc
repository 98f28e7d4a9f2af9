#include "coordinator/scheduler/first_time.h"

#include <algorithm>

namespace muster {

void FirstTime::Add(const std::vector<TimeSpan>& spans, std::size_t group) {
  for (const TimeSpan& span : spans) {
    edges_.push_back({span.from, 1, group});
    if (span.to != kNever) edges_.push_back({span.to, -1, group});
  }
}

void FirstTime::AddNode(const std::vector<TimeSpan>& spans, std::size_t group) {
  groups_ = std::max(groups_, group + 1);
  Add(spans, group);
}

void FirstTime::AddLimit(const std::vector<TimeSpan>& spans) {
  ++limits_;
  Add(spans, kLimit);
}

std::optional<TimePoint> FirstTime::Find(int nodes) const {
  std::vector<Edge> edges = edges_;
  std::ranges::sort(edges, {}, &Edge::at);
  std::vector<int> free(groups_, 0);
  int allowing = 0;
  int complete = 0;  // groups with as many nodes
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const Edge& edge = edges[i];
    if (edge.group == kLimit) {
      allowing += edge.delta;
    } else {
      int& n = free[edge.group];
      complete -= n >= nodes ? 1 : 0;
      n += edge.delta;
      complete += n >= nodes ? 1 : 0;
    }
    const bool all_of_time = i + 1 == edges.size() || edges[i + 1].at != edge.at;
    if (all_of_time && allowing == limits_ && complete > 0) return edge.at;
  }
  return std::nullopt;
}

}  // namespace muster
