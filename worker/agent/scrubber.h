// Scrubber: reads checkpoints again on a thread of its own.
//
// In the background: the thread has the lowest priority for processor and disk. It waits while it
// is held, and while a shard is being written to one of the given output directories. One order at
// a time: a new one cancels the previous one. At once: the thread yields the processor to the
// ranks, and nothing else delays it. One order after the other; a new one cancels those of the same
// job. Both obey the order's bytes per second. Every order that was begun is answered.
//
// Owned by AgentRunner. Any thread may call; `done` is called on the scrubber's thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
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

class OwnerFiles;

// Where checkpoints of a job come to lie, and whose it is.
struct OutputDirectory {
  std::string account;
  std::string path;
};

class Scrubber {
 public:
  using Done = std::function<void(CheckpointScrubbed)>;

  // In the background. `files` outlives it.
  Scrubber(OwnerFiles& files, Done done);
  // At once; `background`, which outlives it, is held while it reads.
  Scrubber(OwnerFiles& files, Done done, Scrubber& background);
  // Cancels the reading under way.
  ~Scrubber();
  Scrubber(const Scrubber&) = delete;
  Scrubber& operator=(const Scrubber&) = delete;

  // `yields_to`: the output directories whose checkpoints come first.
  void Start(ScrubCheckpoint order, std::vector<OutputDirectory> yields_to);
  void Cancel(std::uint64_t scrub_id);
  // Nothing is read between the two; they nest.
  void Hold();
  void Resume();

 private:
  struct Order {
    ScrubCheckpoint scrub;
    std::vector<OutputDirectory> yields_to;
    TimePoint next_read;  // by its speed
    TimePoint next_look;  // whether a shard is being written
  };

  Scrubber(OwnerFiles& files, Done done, Scrubber* background);
  bool CallsOff(const ScrubCheckpoint& newer, const ScrubCheckpoint& order) const;
  void Run();
  CheckpointScrubbed Read(Order& order);
  Status BeforeRead(Order& order, std::uint64_t bytes);
  bool IsBeingWritten(const std::vector<OutputDirectory>& directories);

  OwnerFiles& files_;
  const Done done_;
  Scrubber* const background_;  // null: this is it
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Order> waiting_;
  std::optional<ScrubCheckpoint> reading_;
  bool called_off_ = false;  // what is being read
  int holds_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace muster::worker
