// GuardianWatchdog: when a guardian counts as lost, because it is silent or because it is of
// another version whose packets could be misunderstood, as a pure state machine.
//
// A guardian that is stopped, or whose one thread waits for a dead file server, keeps its
// connection: only an unanswered ping reveals it. Time is counted in the caller's ticks, not by a
// clock: a worker that was stopped itself has sent no pings in that time.
//
// Owned by AgentRunner, one per connection. Any one thread.
#pragma once

#include <string>

#include "common/base/version_table.h"

namespace muster::worker {

class GuardianWatchdog {
 public:
  enum class Act {
    kNothing,
    kPing,
    kKill,    // it counts as lost
    kGiveUp,  // not even SIGKILL has ended its connection
  };

  // Silent ticks until it is killed, and then until it is given up.
  static constexpr int kTimeout = 3;

  // `greets`: the guardian was listening when the worker connected, so its Hello is awaited as an
  // answer. A guardian that is being started may take its time.
  explicit GuardianWatchdog(bool greets) : waits_(greets) {}

  // It sent a message.
  void OnHeard();
  // Its Hello announces whether it answers pings; an older version does not, and gets none.
  void OnHello(bool answers_pings, VersionRange packets) {
    asks_ = answers_pings;
    packets_ = packets;
  }
  Act OnTick();
  // Whether nothing that it says counts, because it speaks no packets of this version.
  bool refuses() const { return !CommonVersion(kGuardianPackets, packets_); }
  // Why it is killed: "does not answer".
  std::string reason() const;

 private:
  bool asks_ = false;
  bool waits_ = false;                       // for a message
  int silent_ = 0;                           // ticks
  VersionRange packets_ = kGuardianPackets;  // that it speaks
};

}  // namespace muster::worker
