// Scrubber: reads checkpoints again on a thread of its own, and is in nobody's way.
//
// The thread has the lowest priority for processor and disk and keeps to the order's bytes per
// second. It waits while it is held, and while a shard is being written to one of the given output
// directories. One order at a time: a new one calls off the one before. Every order is answered.
//
// Owned by AgentRunner. Any thread may call; `done` is called on the scrubber's thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/wire/messages.h"

namespace muster::worker {

class Scrubber {
 public:
  using Done = std::function<void(CheckpointScrubbed)>;

  explicit Scrubber(Done done);
  // Calls off what is being read.
  ~Scrubber();
  Scrubber(const Scrubber&) = delete;
  Scrubber& operator=(const Scrubber&) = delete;

  // `yields_to`: the output directories whose checkpoints come first.
  void Start(ScrubCheckpoint order, std::vector<std::string> yields_to);
  void Cancel(std::uint64_t scrub_id);
  // Nothing is read between the two; they nest.
  void Hold();
  void Resume();

 private:
  struct Order {
    ScrubCheckpoint scrub;
    std::vector<std::string> yields_to;
    TimePoint next_read;  // by its speed
    TimePoint next_look;  // whether a shard is being written
  };

  void Run();
  Status BeforeRead(Order& order, std::uint64_t bytes);

  const Done done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Order> next_;
  std::uint64_t reading_ = 0;  // 0: none, or it was called off
  int holds_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace muster::worker
