// ShardSaver: writes a rank's shards in the background, one at a time.
//
// Holds the memory of one shard and a thread of low priority. Both outlive the generation that
// handed the shard over: what is being written is finished, and reported to the committer that came
// with it, while the rank is already part of another gang.
//
// Owned by the rank's process. Called by the trainer's thread, CallOff by any: it waits for
// nothing.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/control_pipe/training_figures.h"
#include "trainer/state/checkpoint/checkpoint.h"
#include "trainer/state/checkpoint/committer.h"
#include "trainer/state/checkpoint/shard_image.h"

namespace muster {

struct ShardSaverCounters {
  std::uint64_t saved = 0;  // shards durable and handed to the committer
  std::uint64_t failed = 0;
  std::uint64_t bytes = 0;  // of those that were saved
  SaveSeconds write;        // of each, from the copy until it is durable and handed over
};

class ShardSaver {
 public:
  // Where a shard goes.
  struct Target {
    std::string directory;  // <output>/checkpoints
    std::shared_ptr<CheckpointCommitter> committer;
  };

  ShardSaver();
  // Waits for the shard in flight.
  ~ShardSaver();
  ShardSaver(const ShardSaver&) = delete;
  ShardSaver& operator=(const ShardSaver&) = delete;

  // Allocates the memory for such arrays in the background, unless a shard is in flight.
  void Reserve(const std::vector<ShardArray>& arrays);
  // Whether a shard is being written.
  bool writing() const;
  // Copies the arrays and returns; not while writing(). What goes wrong later is reported to the
  // committer. Throws std::bad_alloc.
  void Take(ShardHeader header, const ArrayMemory& memory, Target target);
  // The same without a copy: `shard` holds the arrays, and is let go of once it is written.
  void Take(ShardHeader header, SealedShard shard, Target target);
  // Whether the shard that was taken last could not be written, or not be handed over.
  bool failed() const;
  // The checkpoint of the shard that was taken last will not be one, since another rank failed:
  // its file goes, now or when it has been written.
  void Discard();

  // Waits until nothing is in flight: the outcome of the last shard. kDeadlineExceeded when it is
  // not done in time, kCancelled when `generation` is called off.
  Status Drain(Generation generation, Deadline deadline);
  // The same, for as long as bytes are written: kDeadlineExceeded after `timeout` without any.
  // `on_moved` is called in this thread whenever more of the shard has reached its file.
  Status DrainWhileMoving(Generation generation, Duration timeout,
                          const std::function<void()>& on_moved);
  // No rank of these generations waits any longer.
  void CallOff(Generation through);

  ShardSaverCounters counters() const;

 private:
  enum class Task { kNone, kReserve, kTake, kWrite };
  void Work();
  void BeginTake();
  void SetTask(Task task);
  Status ReserveMemory();
  Status Write();
  Status WriteAndReport(const CheckpointManifest& checkpoint);
  void CountWritten(std::uint64_t bytes);
  bool Drained(Generation generation) const {
    return task_ == Task::kNone || generation <= called_off_through_;
  }
  Status Outcome(Generation generation) const;
  CheckpointManifest Checkpoint() const;
  void RemoveShard() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Owned by the thread of the task: kTake is the caller's, the others are the background's.
  ShardImage image_;
  Target target_;
  std::vector<ShardArray> reserved_;
  Task task_ = Task::kNone;
  bool stopping_ = false;
  bool taken_ = false;         // image_ is a shard's
  std::uint64_t written_ = 0;  // bytes of the shard that was taken last
  bool discarded_ = false;
  Generation called_off_through_ = 0;
  Status last_;
  ShardSaverCounters counters_;
  std::thread thread_;
};

}  // namespace muster
