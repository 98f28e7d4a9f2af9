// HandshakeLimit: how many handshakes a TLS listener has under way at once, and which of them ends
// when another client waits at the listener. Private to this folder.
//
// A client that connects and sends nothing costs a descriptor and a slot until its deadline, so the
// slots are few and other clients wait in the kernel's backlog, at no cost. So that silence shuts
// no client out, a handshake gives way to the next in line once it had its timeout: a client sends
// its first words together with the last packet of the connect, so one that has sent none is not
// missed.
//
// Owned by an HttpServer's connections; the loop's thread. Pure: time is an argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "common/base/clock.h"

namespace muster {

class HandshakeLimit {
 public:
  static constexpr std::size_t kMax = 16;
  // At least so long each has, however many wait: before its first words, and from the connect
  // until it is done, for which a client needs two round trips.
  static constexpr Duration kSilentTimeout = std::chrono::milliseconds(20);
  static constexpr Duration kTimeout = std::chrono::milliseconds(250);

  struct Handshake {
    std::function<bool()> has_spoken;
    std::function<void()> hang_up;  // must not call Begin or MakeRoom
  };

  // Begins a handshake; the number is for End. The caller has seen that it is not full.
  std::uint64_t Begin(Handshake handshake, TimePoint now);
  // It is done or has failed. Does nothing for one that is gone already.
  void End(std::uint64_t id) { open_.erase(id); }

  bool full() const { return open_.size() >= kMax; }

  // For one more: where it is full, the oldest that had its timeout is hung up on. Zero: there is
  // room. Else it is worth another look after so long.
  Duration MakeRoom(TimePoint now);

  // Those that had to give way.
  std::uint64_t displaced() const { return displaced_; }

 private:
  struct Open {
    Handshake handshake;
    TimePoint begun;
  };
  std::map<std::uint64_t, Open> open_;  // the oldest first
  std::uint64_t next_id_ = 1;
  std::uint64_t displaced_ = 0;
};

}  // namespace muster
