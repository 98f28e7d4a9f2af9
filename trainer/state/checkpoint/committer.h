// CheckpointCommitter: who makes a written set of shards count.
//
// Two implementations: SupervisorCommitter (trainer/supervise) reports each shard to the guardian;
// LocalCommitter serves plain torchrun and srun, where rank 0's background thread collects the
// other ranks' records from the (shared) disk.
//
// All calls come from the checkpointer's background thread and may block, each for a bounded time.
#pragma once

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "trainer/state/checkpoint/checkpoint.h"

namespace muster {

class CheckpointCommitter {
 public:
  virtual ~CheckpointCommitter() = default;

  // This rank's shard of `checkpoint` is durable. `checkpoint` lists no shards.
  virtual Status ShardWritten(const CheckpointManifest& checkpoint, const ShardRecord& shard) = 0;
  // Rank `rank`, this one, could not write its shard, or ShardWritten failed.
  virtual void Failed(const CheckpointManifest& checkpoint, int rank, const Status& reason) = 0;
};

struct LocalCommitterOptions {
  std::string directory;   // <output>/checkpoints
  int keep = 3;            // committed checkpoints that stay; at least 1
  bool keep_best = false;  // so does the one of the lowest eval_loss
  // How long rank 0 waits for the other ranks' records before it gives the checkpoint up.
  Duration timeout = std::chrono::minutes(10);
};
std::unique_ptr<CheckpointCommitter> MakeLocalCommitter(LocalCommitterOptions options);

}  // namespace muster
