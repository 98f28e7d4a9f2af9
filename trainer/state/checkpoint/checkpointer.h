// Checkpointer: saves one rank's state in the background and finds the newest good state again.
//
// Save copies the arrays at a step boundary into an image that the saver holds, or where a snapshot
// has them already, has that kept as it is (nothing is ever written from live memory), and returns;
// the saver's thread of low priority writes the shard past the page cache and hands it to the
// committer. So a step waits for the copy of its own shard and for nothing else, and memory is
// bounded by one shard.
//
// One checkpoint is in flight. A Save that finds any rank still writing takes none, on no rank, and
// says so: a disk that is slower than checkpoint.every costs checkpoints, not training time. A
// checkpoint that fails (disk full, I/O error, a rank that never reports) is reported and
// forgotten, and what other ranks have written of it is removed as soon as they hear of it;
// training goes on.
//
// Belongs to one generation; the saver may serve several. Threads: everything is called by the
// trainer's thread. The saver's thread issues no collectives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "trainer/state/checkpoint/checkpoint_search.h"
#include "trainer/state/checkpoint/committer.h"
#include "trainer/state/checkpoint/shard_saver.h"

namespace muster {

struct CheckpointerOptions {
  std::string directory;  // <output>/checkpoints
  std::string job_id;
  Generation generation = 1;
  int rank = 0;
  int world_size = 1;
  std::string resume_file;  // MUSTER_RESUME_FILE; empty: manifests found in `directory`
  // Elements of the model, so that a checkpoint of another one is reported; 0: not known.
  std::int64_t parameters = 0;
  // False: another rank holds the same arrays and writes them (no_shard, hybrid_shard). This one's
  // shard then says who it is and holds no array.
  bool writes = true;
  ArrayMemory memory;                         // of the arrays
  std::optional<AdapterOrigin> adapter = {};  // what the arrays belong to; nothing: a whole model
  OriginCheck fits = {};                      // of what is loaded; empty: anything may be
  // Called by LoadNewest, in its thread, as bytes of a checkpoint arrive; may be empty.
  std::function<void()> on_read;
};

struct CheckpointerCounters {
  std::uint64_t saved = 0;  // shards durable and handed to the committer
  std::uint64_t failed = 0;
  std::uint64_t skipped = 0;  // Saves that found a rank still writing
};

enum class SaveOutcome {
  kTaken,    // copied; it will be written, or its failure reported
  kSkipped,  // some rank is still writing the one before
};

class Checkpointer {
 public:
  Checkpointer(CheckpointerOptions options, std::unique_ptr<CheckpointCommitter> committer,
               std::shared_ptr<ShardSaver> saver = std::make_shared<ShardSaver>());
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Collective. Tries the candidates newest first: every rank reads its intervals, whatever number
  // of ranks wrote them, and all agree. On success `into`'s intervals and `cursor` hold the state;
  // with step 0 `cursor` is untouched and `into` is zero if a candidate was rejected, else
  // untouched. kFailedPrecondition when the newest checkpoint is of another model, of another
  // origin or of other element types: restarting from nothing would not be what the user meant.
  // Only candidates of steps beyond `above` are tried: what the caller has of that step comes
  // before older ones.
  Result<LoadOutcome> LoadNewest(Communicator& communicator, const std::vector<ShardArray>& into,
                                 TrainCursor* cursor, Step above = 0);

  // Has the memory for the copy of such arrays ready before the first Save, which otherwise
  // allocates it. Returns at once.
  void Prepare(const std::vector<ShardArray>& arrays);

  // Collective (two numbers). The copy is taken when it returns; the shard's directory is named
  // after cursor.step. `seal`, if not empty, gives the memory that holds these arrays as the file
  // will, which then is written from there instead of a copy. What goes wrong later goes to the
  // committer; the status here is the collective's. Throws std::bad_alloc when there is no memory
  // for the copy.
  Result<SaveOutcome> Save(Communicator& communicator, const TrainCursor& cursor,
                           const std::vector<ShardArray>& arrays,
                           const std::function<SealedShard()>& seal = {});

  // Whether this rank could not write the last shard and the others are to hear of it.
  bool failed() const { return saver_->failed(); }
  // Some rank could not write the last checkpoint: this rank's shard of it goes too.
  void Discard() { saver_->Discard(); }

  // Waits until nothing is in flight: written, handed over and, for a local commit, committed.
  // kDeadlineExceeded when it is not done in time, kCancelled when the generation is called off
  // (ShardSaver::CallOff); the outcome of the last Save otherwise.
  Status Drain(Deadline deadline) { return saver_->Drain(options_.generation, deadline); }
  // The same, for as long as the shard's file grows (ShardSaver::DrainWhileMoving).
  Status DrainWhileMoving(Duration timeout, const std::function<void()>& on_moved) {
    return saver_->DrainWhileMoving(options_.generation, timeout, on_moved);
  }

  // The generation in the names of new directories. It is options.generation, unless the disk
  // already held directories of as high a one when LoadNewest looked (plain torchrun counts from 1
  // again): then one more than those.
  Generation generation() const { return options_.generation; }
  CheckpointerCounters counters() const;

 private:
  CheckpointerOptions options_;
  const std::shared_ptr<CheckpointCommitter> committer_;
  const std::shared_ptr<ShardSaver> saver_;
  std::uint64_t skipped_ = 0;
};

}  // namespace muster
