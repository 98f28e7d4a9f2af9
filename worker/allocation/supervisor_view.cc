// What SupervisorLoop knows of itself and of the other nodes.

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "worker/allocation/supervisor_loop.h"

namespace muster::worker {

PeerView SupervisorLoop::View() const {
  PeerView view{.self = self_,
                .run = options_.run,
                .leadership = election_.leadership(),
                .leader_answers = election_.LeaderAnswers(),
                .unfit = election_.unfit(),
                .stop_reason = {},
                .ending = ending_.ending()};
  if (const auto& stop_by = duties_.monitor().stop_by()) {
    view.stop_seconds = std::max(0.0, ToSeconds(*stop_by - SystemClock().Now()));
    view.stop_reason = duties_.monitor().stop_reason();
  }
  return view;
}

std::vector<std::string> SupervisorLoop::MissingNodes() const {
  const TimePoint now = SystemClock().Now();
  std::set<std::string> heard;
  for (const auto& [index, member] : election_.members())
    if (election_.Alive(index, now)) heard.insert(member.node);
  heard.insert(self_.node);
  std::vector<std::string> missing;
  for (const std::string& node : options_.node_names)
    if (heard.count(node) == 0) missing.push_back(node);
  return missing;
}

std::set<std::string> SupervisorLoop::NodesWithoutWorker() const {
  std::set<std::string> nodes;
  for (const auto& [index, member] : election_.members())
    if (!member.has_worker) nodes.insert(member.node);
  if (!self_.has_worker) nodes.insert(self_.node);
  return nodes;
}

}  // namespace muster::worker
