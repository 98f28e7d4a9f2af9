// Checkpointer: saves one rank's state in the background and finds the newest good state again.
//
// Save copies the arrays at a step boundary into a snapshot that the checkpointer holds (sealed:
// nothing is ever written from live memory) and returns; a background thread writes the shard and
// hands it to the committer. One checkpoint is in flight: a second Save waits for the first. A
// checkpoint that fails (disk full, I/O error, a rank that never reports) is reported and
// forgotten; training goes on.
//
// Threads: Save, Drain and LoadNewest are called by the trainer's thread. The background thread
// issues no collectives.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/committer.h"
#include "trainer/checkpoint/shard_file.h"
#include "trainer/checkpoint/supervisor.h"
#include "trainer/distributed/communicator.h"

namespace muster {

struct CheckpointerOptions {
  std::string directory;  // <output>/checkpoints
  std::string job_id;
  Generation generation = 1;
  int rank = 0;
  int world_size = 1;
  std::string resume_file;  // MUSTER_RESUME_FILE; empty: manifests found in `directory`
};

struct LoadOutcome {
  Step step = 0;                             // 0: nothing to resume from
  std::string directory;                     // of the checkpoint that was loaded
  std::vector<RejectedCheckpoint> rejected;  // newest first, equal on all ranks
};

struct CheckpointerCounters {
  std::uint64_t saved = 0;  // shards durable and handed to the committer
  std::uint64_t failed = 0;
  std::uint64_t waited = 0;  // Saves that had to wait for the one before
};

class Checkpointer {
 public:
  Checkpointer(CheckpointerOptions options, std::unique_ptr<CheckpointCommitter> committer);
  // Waits for the checkpoint in flight.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Collective. Tries the candidates newest first; each rank verifies its own shard and all agree
  // before a byte is used. On success `into`'s memory and `cursor` hold the state; with step 0
  // they are untouched. kFailedPrecondition when the newest checkpoint is of another world size or
  // another model: restarting from nothing would not be what the user meant.
  Result<LoadOutcome> LoadNewest(Communicator& communicator, const std::vector<ShardArray>& into,
                                 TrainCursor* cursor);

  // Snapshots and returns; errors are reported through the committer. The shard's directory is
  // named after cursor.step.
  void Save(const TrainCursor& cursor, const std::vector<ShardArray>& arrays);

  // Waits until nothing is in flight: written, handed over and, for a local commit, committed.
  // kDeadlineExceeded when it is not done in time; the outcome of the last Save otherwise.
  Status Drain(Deadline deadline);

  // The generation in the names of new directories. It is options.generation, unless the disk
  // already held directories of as high a one when LoadNewest looked (plain torchrun counts from 1
  // again): then one more than those.
  Generation generation() const { return options_.generation; }
  CheckpointerCounters counters() const;

 private:
  struct Snapshot {
    ShardHeader header;
    std::vector<std::vector<std::byte>> memory;  // kept between saves
  };
  void Work();
  Status Write();
  Status WriteAndReport(const CheckpointManifest& checkpoint);

  CheckpointerOptions options_;
  const std::unique_ptr<CheckpointCommitter> committer_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Snapshot snapshot_;  // owned by the background thread while in_flight_
  bool in_flight_ = false;
  bool stopping_ = false;
  Status last_;
  CheckpointerCounters counters_;
  std::thread thread_;
};

}  // namespace muster
