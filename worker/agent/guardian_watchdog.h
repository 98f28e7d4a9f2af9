// GuardianWatchdog: when a silent guardian counts as lost, as a pure state machine.
//
// A guardian that is stopped, or whose one thread waits for a dead file server, keeps its
// connection: only an unanswered ping reveals it. Time is counted in the caller's ticks, not by a
// clock: a worker that was stopped itself has sent no pings in that time.
//
// Owned by AgentRunner, one per connection. Any one thread.
#pragma once

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
  void OnHello(bool answers_pings) { asks_ = answers_pings; }
  Act OnTick();

 private:
  bool asks_ = false;
  bool waits_ = false;  // for a message
  int silent_ = 0;      // ticks
};

}  // namespace muster::worker
