// GuardianWatchdog: when a guardian that says nothing counts as lost, as a pure state machine.
//
// A guardian that is stopped, or whose one thread waits for a dead file server, keeps its
// connection: nothing but a question that it does not answer tells. Time is counted in the caller's
// own ticks, not by a clock: a worker that was stopped itself has not asked meanwhile.
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

  // Ticks without a word until it is killed, and then until it is given up.
  static constexpr int kTimeout = 3;

  // `greets`: a guardian that listened was connected to, so that its Hello is an answer that is
  // waited for. One that is being started takes the time it takes.
  explicit GuardianWatchdog(bool greets) : waits_(greets) {}

  // It said something.
  void OnHeard();
  // Its Hello said so; one of an older version knows no ping and is not asked.
  void OnHello(bool answers_pings) { asks_ = answers_pings; }
  Act OnTick();

 private:
  bool asks_ = false;
  bool waits_ = false;  // for a word
  int silent_ = 0;      // ticks
};

}  // namespace muster::worker
