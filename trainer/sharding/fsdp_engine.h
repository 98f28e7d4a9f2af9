// FsdpEngine: FULL_SHARD training of one model on one rank, with an explicit schedule.
//
// A step is: ForwardBackward for every micro-batch, FinishGradients, and, when its numbers are
// finite, OptimizerStep. Per micro-batch, with units 0 (embedding), 1 .. L (blocks), L+1 (head):
//
//   forward   gather(u + 1) starts, then unit u computes as soon as its own gather has ended
//   loss      head, forward and backward at once; reduce(head) starts
//   backward  gather(u - 1) starts, then block u runs its own small autograd graph;
//             reduce(u) starts as soon as its gradients are in the flat gradient slot
//   end       the embedding's gradient; reduce(embed) starts
//
// Blocks L and L-1 are still gathered when backward begins, blocks 1 and 2 when the next
// micro-batch does. Everything that lives longer than a micro-batch is allocated by Create.
//
// One thread, the trainer's, calls everything; every rank calls the same in the same order. Results
// are deterministic for a given world size, thread count and instruction set.
// Errors: a failed collective's status. After one the step's gradients are forgotten, weights and
// moments are those of the last finished step; once the communicator is formed again, the step can
// be done again from its first micro-batch.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/control_pipe/progress_page.h"
#include "common/job_spec/job_spec.h"
#include "trainer/core/flat_layout.h"
#include "trainer/core/model_config.h"
#include "trainer/data/batch_loader.h"
#include "trainer/distributed/communicator.h"
#include "trainer/kernels/adamw.h"
#include "trainer/sharding/shard_state.h"

namespace muster {

struct FsdpOptions {
  MixedPrecision precision = MixedPrecision::kBf16;
  AdamWOptions adamw;
  double grad_clip = 1.0;  // global L2 norm; 0: none
  // Called as a micro-batch moves on; cheap. Empty: nobody asks.
  std::function<void(TrainPhase)> on_phase;
};

// Of one step, equal on all ranks.
struct StepNumbers {
  double loss = 0;       // mean over the label tokens of all ranks and micro-batches
  double grad_norm = 0;  // before clipping
  double votes = 0;      // of all ranks, added up
  bool finite() const;
};

class FsdpEngine {
 public:
  // The communicator is formed and outlives the engine.
  static std::unique_ptr<FsdpEngine> Create(const ModelConfig& config, Communicator& communicator,
                                            FsdpOptions options);
  virtual ~FsdpEngine() = default;

  virtual const FlatLayout& layout() const = 0;
  // The arrays to load a model or a checkpoint into; call WeightsLoaded afterwards.
  virtual const ShardState& state() const = 0;
  virtual void WeightsLoaded() = 0;

  // Adds the gradients of one micro-batch. `loss_scale` is 1 / label tokens of the whole step's
  // batch. A batch without labels takes part with zero gradients.
  virtual Status ForwardBackward(const MicroBatch& batch, double loss_scale) = 0;
  // Ends the reductions; the gradients of the step are complete. `vote` rides along in the same
  // small collective: whatever the ranks must agree on at this step boundary.
  virtual Result<StepNumbers> FinishGradients(double vote = 0) = 0;
  // Clips and updates. `step` counts from 1; the gradients of FinishGradients are used up.
  virtual void OptimizerStep(Step step, double lr) = 0;
};

}  // namespace muster
