// NodeRefusals: nodes that cannot take part in a job although others have: a mount is missing, a
// disk is read-only, the GPU has gone. Nothing of the job is placed on such a node for a while;
// each refusal in a row doubles the pause.
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

class NodeRefusals {
 public:
  // How long the node is left alone.
  Duration Refuse(const NodeName& node, std::string why, TimePoint now);
  // It took part.
  void Accept(const NodeName& node) { refusals_.erase(node); }
  // True if a pause is over: the node may be tried again.
  bool Expire(TimePoint now);
  std::optional<TimePoint> NextExpiry() const;
  bool Pauses(const NodeName& node) const;
  std::vector<NodeName> Paused() const;  // by name
  // "n2 cannot run it: <why>"; empty if no node is left alone.
  std::string Text() const;

 private:
  struct Refusal {
    int in_a_row = 0;
    std::optional<TimePoint> until;
    std::string why;
  };
  std::map<NodeName, Refusal> refusals_;
};

}  // namespace muster
