// InitFrom: starts a new job from the state of another one.
//
// The source is a sharded checkpoint of any world size, unit size and strategy, or one safetensors
// file as `muster-trainer export --format full` writes it. Unlike a resume it starts a training of
// its own: the caller's cursor stays at step 0, and element types may differ (they are converted).
//
// Every rank reads only the byte ranges of its own intervals, through one small buffer. Blocks on
// the disk; the trainer's thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/state/checkpoint/checkpoint.h"

namespace muster {

struct InitFromOptions {
  // Take exp_avg and exp_avg_sq too. Without it only "<unit>/weight" arrays are filled and the
  // others stay as they are.
  bool optimizer = false;
  ArrayMemory memory;             // of the arrays
  std::function<void()> on_read;  // FillOptions::on_read
};

// Collective: fills `arrays` (all that the engine would save) from `path`:
//   DIR/step-00000050-g2      a checkpoint: the directory that holds manifest.json
//   DIR                       a directory of checkpoints: the newest committed one
//   FILE.safetensors          a full state dict in one file
// Rank 0 chooses the state at its `path`; the others find that very checkpoint at theirs, by the
// checksums of its shards, or a file of the same weights and cursor. It is long work (LongWork).
// Returns where that training stood. With `optimizer` the new job's cursor takes over its
// `optimizer_steps`, so that AdamW's bias correction fits the moments; nothing else of it.
//
// Errors are those of the first rank that has one, and name it, the file and the tensor: kNotFound
// (no such path, or nothing in it that could be loaded), kFailedPrecondition (another model: a
// tensor is missing or has another shape; `optimizer` where there are no moments; or another file
// than rank 0's), kDataLoss (damaged, or a part of a tensor is in no shard). After an error the
// arrays are undefined.
Result<TrainCursor> InitFrom(Communicator& communicator, const std::string& path,
                             const std::vector<ShardArray>& arrays, const InitFromOptions& options);

}  // namespace muster
