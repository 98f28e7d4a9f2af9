// Values of a sharded checkpoint: what a rank hands over and what it gets back.
//
// A checkpoint is the training representation itself: every rank's flat arrays plus the intervals
// of the model's tensors that lie in them, so that any world size can find its bytes again by
// intersecting intervals. docs/checkpoint-format.md describes the files.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "trainer/core/shard_array.h"

namespace muster {

// What a job's evaluations have found so far. A loss that is not finite is infinite here: it is
// never better than another.
struct EvalHistory {
  Step step = -1;  // of the last evaluation; -1: none yet, and then nothing else counts
  double loss = std::numeric_limits<double>::infinity();  // what it found
  Step best_step = -1;                                    // of the lowest loss; -1: none is finite
  double best_loss = std::numeric_limits<double>::infinity();
  // What a loss must be below, by train.eval.early_stop.min_delta, to show that training goes on
  // getting better, and how many evaluations in a row were not.
  double reference_loss = std::numeric_limits<double>::infinity();
  std::int64_t without_better = 0;

  friend bool operator==(const EvalHistory&, const EvalHistory&) = default;
};

// Where training stands, equal on all ranks. With the arrays it is all that a resume needs.
struct TrainCursor {
  Step step = 0;
  std::int64_t samples = 0;  // rows consumed since step 0 by the whole job
  std::int64_t tokens = 0;   // label tokens trained on since step 0 by the whole job
  std::uint64_t seed = 0;
  std::uint64_t sample_chain = 0;  // hash chain over the ids of all samples consumed, in order
  // Updates that the AdamW moments have seen: the t of their bias correction. Equal to `step`
  // unless the moments came with init_from or steps were skipped.
  std::int64_t optimizer_steps = 0;
  // Of fp16 training: the scale of the loss and for how many steps in a row it has held.
  double loss_scale = 1;
  std::int64_t loss_scale_steps = 0;
  EvalHistory evaluations;

  friend bool operator==(const TrainCursor&, const TrainCursor&) = default;
};

// What a shard's writer reports; field names as in muster.v1.ShardInfo.
struct ShardRecord {
  int rank = 0;
  std::string file;
  std::uint64_t bytes = 0;
  std::string checksum;  // of common/checkpoint_format/shard_frame.h
};

// The manifest: the list of shards that make a checkpoint complete. Written last.
struct CheckpointManifest {
  Step step = 0;
  Generation generation = 0;
  std::string job_id;
  std::string directory;  // relative to <output>/checkpoints
  int world_size = 0;
  std::vector<ShardRecord> shards;
  // What an evaluation of this very state has found; none: there was none, or its loss is not
  // finite. Not part of what makes the checkpoint complete.
  std::optional<double> eval_loss = {};
};

}  // namespace muster
