// RefusalLog: puts requests that were refused into the audit trail, at a bounded rate for each
// peer.
//
// Owned by the server; the loop's thread. The runtime outlives it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "common/base/clock.h"
#include "coordinator/control/events.h"
#include "coordinator/service/controller_runtime.h"
#include "coordinator/service/token_bucket.h"

namespace muster {

class RefusalLog {
 public:
  static constexpr double kAtOnce = 20;  // entries of one host
  static constexpr double kPerSecond = 1;
  static constexpr std::size_t kMaxPeers = 4096;
  static constexpr int kMaxWaiting = 64;

  RefusalLog(ControllerRuntime& runtime, const Clock& clock) : runtime_(runtime), clock_(clock) {}

  // Of more than the rate, only the number is recorded, with the host's next entry.
  void Note(RequestNoted refusal);

  // For refusals by other threads, which come faster than the loop can take them while a client
  // floods: whether one more may wait for the loop, which calls Noted with it. Any thread.
  bool MayWait();
  void Noted(RequestNoted refusal);

 private:
  struct Peer {
    TokenBucket bucket{kAtOnce, kPerSecond};
    std::uint64_t dropped = 0;
  };

  ControllerRuntime& runtime_;
  const Clock& clock_;
  std::unordered_map<std::string, Peer> peers_;  // by host
  std::atomic<int> waiting_ = 0;
  std::atomic<std::uint64_t> turned_away_ = 0;  // since the last that was noted
};

}  // namespace muster
