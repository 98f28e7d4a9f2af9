// Whether a silent node is lost: what its silence, the probers that were asked to reach it, and
// the jobs with ranks on it say together (docs/recovery.md, "Probers").
//
// Pure; any thread.
#pragma once

#include <string>

#include "common/base/clock.h"

namespace muster {

struct NodeVerdictInput {
  Duration silence = Duration::zero();  // since its last word
  // What the probers that were asked last have said; all zero where there was nobody to ask.
  int answered = 0;         // the worker itself has answered
  int refused = 0;          // the host lives, the worker does not
  int silent = 0;           // the host's kernel took a connection, the worker said nothing
  int unreachable = 0;      // nothing answered
  bool complete = true;     // nobody who was asked is still waited for
  bool asked = false;       // there was somebody to ask
  bool all_silent = false;  // several nodes are silent and none speaks: it may be ourselves
  bool lost_peer = false;   // ranks elsewhere lost a peer there and no exit explains it
  Duration lease = std::chrono::seconds(10);
};

enum class NodeVerdict {
  kWait,        // nothing follows yet
  kLostToJobs,  // to those whose ranks lost a peer there
  kLost,
};

struct NodeJudgement {
  NodeVerdict verdict = NodeVerdict::kWait;
  std::string reason;  // a clause: "no prober reaches it"; empty: wait
};

inline constexpr Duration kUnreachableUntilLost = std::chrono::milliseconds(2500);
inline constexpr Duration kRefusedUntilLost = std::chrono::seconds(60);
// A worker that is late once under load says nothing for half a second as well.
inline constexpr Duration kSilentUntilLostToJobs = std::chrono::milliseconds(2500);

NodeJudgement JudgeSilence(const NodeVerdictInput& input);

}  // namespace muster
