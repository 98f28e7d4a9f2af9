// Whether a silent node is lost: a verdict on its silence, the answers of its probers, and the jobs
// with ranks on it (docs/recovery.md, "Probers").
//
// Pure; any thread.
#pragma once

#include <string>

#include "common/base/clock.h"

namespace muster {

struct NodeVerdictInput {
  Duration silence = Duration::zero();  // since its last message
  // Answers of the probers that were asked last; all zero if there was no prober.
  int answered = 0;         // the worker itself has answered
  int refused = 0;          // the host lives, the worker does not
  int silent = 0;           // the host's kernel accepted a connection, the worker was silent
  int unreachable = 0;      // nothing answered
  bool complete = true;     // no prober that was asked is still waited for
  bool asked = false;       // there was a prober to ask
  bool all_silent = false;  // several nodes are silent and none sends: the fault may be local
  bool lost_peer = false;   // ranks elsewhere lost a peer there and no exit explains it
  Duration lease = std::chrono::seconds(10);
};

enum class NodeVerdict {
  kWait,        // nothing follows yet
  kLostToJobs,  // lost to those whose ranks lost a peer there
  kLost,
};

struct SilenceVerdict {
  NodeVerdict verdict = NodeVerdict::kWait;
  std::string reason;  // a clause: "no prober reaches it"; empty: wait
};

inline constexpr Duration kUnreachableUntilLost = std::chrono::milliseconds(2500);
inline constexpr Duration kRefusedUntilLost = std::chrono::seconds(60);
// A worker that is late under load is also silent for half a second.
inline constexpr Duration kSilentUntilLostToJobs = std::chrono::milliseconds(2500);

SilenceVerdict DecideSilence(const NodeVerdictInput& input);

}  // namespace muster
