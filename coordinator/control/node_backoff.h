// NodeBackoff: nodes that cannot take part in a job although others have: a mount is missing, a
// disk is read-only, the GPU has failed. Nothing of the job is placed on such a node for a while;
// each refusal in a row doubles the pause. A node with a fault that may be brief (a guardian that
// was killed while it started) is tried once more first.
//
// Part of a JobEntry; pure, one thread. Not stored: after a restart each node is tried again.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"

namespace muster {

inline constexpr Duration kLongestRefusal = std::chrono::minutes(10);

class NodeBackoff {
 public:
  // How long the node is left alone. Zero for the first refusal of a row if that one does not
  // pause.
  Duration Refuse(const NodeName& node, std::string why, TimePoint now, bool first_pauses = true);
  // The node took part.
  void Accept(const NodeName& node) { refusals_.erase(node); }
  // It has refused since it last took part.
  bool Counts(const NodeName& node) const { return refusals_.contains(node); }
  // True if a pause is over: the node may be tried again.
  bool Expire(TimePoint now);
  std::optional<TimePoint> NextExpiry() const;
  std::vector<NodeName> Paused() const;  // by name
  // "n2 cannot run it: <why>"; empty if no node is left alone.
  std::string Text() const;

 private:
  struct Refusal {
    int pauses = 0;  // in a row
    std::optional<TimePoint> until;
    std::string why;
  };
  std::map<NodeName, Refusal> refusals_;
};

}  // namespace muster
