// LogReads: reads of ranks' logs that wait for an answer of their node.
//
// Owned by WorkerService; the loop's thread. Every read is answered exactly once: by its chunk, by
// the end of its session, or by its deadline.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/runtime/event_loop.h"
#include "coordinator/control/events.h"
#include "muster/v1/worker_api.pb.h"

namespace muster {

class LogReads {
 public:
  using Done = std::function<void(Result<v1::LogChunk>)>;
  static constexpr std::size_t kMaxWaiting = 256;
  static constexpr Duration kDeadline = std::chrono::seconds(5);

  explicit LogReads(EventLoop& loop) : timer_(loop) {}

  // The id to send to the worker of that session, or kResourceExhausted (`done` is then not
  // called).
  Result<std::uint64_t> Start(SessionId session, Done done);
  // Drops an answer to a read that no longer waits.
  void Complete(SessionId session, const v1::LogChunk& chunk);
  void FailSession(SessionId session);

 private:
  struct Waiting {
    SessionId session = 0;
    TimePoint deadline;
    Done done;
  };
  void Arm();
  void Expire();

  Timer timer_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Waiting> waiting_;  // by id, so also by deadline
};

}  // namespace muster
