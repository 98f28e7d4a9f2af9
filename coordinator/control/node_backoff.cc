#include "coordinator/control/node_backoff.h"

#include <algorithm>
#include <utility>

#include "coordinator/control/deadline_queue.h"

namespace muster {
namespace {

constexpr Duration kFirstPause = std::chrono::seconds(10);

}  // namespace

Duration NodeBackoff::Refuse(const NodeName& node, std::string why, TimePoint now,
                             bool first_pauses) {
  const auto [at, first] = refusals_.try_emplace(node);
  Refusal& refusal = at->second;
  refusal.why = std::move(why);
  refusal.until.reset();
  if (first && !first_pauses) return Duration::zero();
  Duration pause = kFirstPause;
  for (int n = 0; n < refusal.pauses && pause < kLongestRefusal; ++n) pause *= 2;
  pause = std::min(pause, kLongestRefusal);
  ++refusal.pauses;
  refusal.until = now + pause;
  return pause;
}

bool NodeBackoff::Expire(TimePoint now) {
  bool expired = false;
  for (auto& [node, refusal] : refusals_) {
    if (!refusal.until || *refusal.until > now) continue;
    refusal.until.reset();
    expired = true;
  }
  return expired;
}

std::optional<TimePoint> NodeBackoff::NextExpiry() const {
  std::optional<TimePoint> next;
  for (const auto& [node, refusal] : refusals_) next = Earliest(next, refusal.until);
  return next;
}

std::vector<NodeName> NodeBackoff::Paused() const {
  std::vector<NodeName> nodes;
  for (const auto& [node, refusal] : refusals_) {
    if (refusal.until) nodes.push_back(node);
  }
  return nodes;
}

std::string NodeBackoff::Text() const {
  std::string text;
  for (const auto& [node, refusal] : refusals_) {
    if (!refusal.until) continue;
    text += (text.empty() ? "" : "; ") + node.value + " cannot run it: " + refusal.why;
  }
  return text;
}

}  // namespace muster
