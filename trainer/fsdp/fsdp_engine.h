// FsdpEngine: sharded training of one model on one rank, with an explicit schedule.
//
// A step is: ForwardBackward for every micro-batch, FinishGradients, and, when its numbers are
// finite, OptimizerStep. Per micro-batch, with units 0 (embedding), 1 .. n (blocks), n+1 (head):
//
//   forward   gather(u + 1) starts, then unit u computes as soon as its own gather has ended
//   loss      head, forward and backward at once; reduce(head) starts
//   backward  gather(u - 1) starts, then the blocks of unit u go backward, their products written
//             into the flat gradient slot; reduce(u) starts
//   end       the embedding's gradient; reduce(embed) starts
//
// The last two block units are still gathered when backward begins, the first two when the next
// micro-batch does. Everything that lives longer than a micro-batch is allocated by Create, but for
// the activations, which are as large as the largest micro-batch seen.
//
// Between steps the same forward pass alone evaluates rows, or continues texts. It changes no
// state, and leaves unsharded parameters to the next step.
//
// One thread, the trainer's, calls everything; every rank calls the same in the same order. Results
// are deterministic for a given world size, thread count and instruction set.
// Errors: a failed collective's status. After one the step's gradients are forgotten, weights and
// moments are those of the last finished step, which is sealed where it was to be; once the
// communicator is formed again, an engine made anew can do the step again from its first
// micro-batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/control_pipe/progress_page.h"
#include "common/job_spec/job_spec.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/flat_layout.h"
#include "trainer/core/model_config.h"
#include "trainer/core/tracer.h"
#include "trainer/data/batch_loader.h"
#include "trainer/formats/safetensors.h"
#include "trainer/fsdp/non_finite.h"
#include "trainer/fsdp/precision.h"
#include "trainer/fsdp/shard_state.h"
#include "trainer/ops/adamw.h"
#include "trainer/ops/device_ops.h"
#include "trainer/state/snapshot/buddy.h"
#include "trainer/state/snapshot/segment.h"

namespace muster {

class RetainedWeights;

struct FsdpOptions {
  ShardingStrategy strategy = ShardingStrategy::kFullShard;
  int ranks_per_node = 1;        // the shard groups of hybrid strategies
  int blocks_per_unit = 1;       // transformer blocks that are gathered together
  std::optional<LoraSpec> lora;  // checked by CheckLora; nothing: the whole model is trained
  std::optional<QuantizationSpec> quantization;  // of the frozen matrices
  Precision precision;
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::kSelective;
  bool reduce_every_micro_batch = true;
  // Master weights, moments and gradient sums in host memory, updated there beside the device's
  // work; changes nothing where the device is the host.
  bool cpu_offload = false;
  AdamWOptions adamw;
  double grad_clip = 1.0;  // global L2 norm; 0: none
  std::uint64_t seed = 0;  // of the masks of dropout
  // Where frozen weights outlive the engine; null: they do not. And what distinguishes the
  // model's files from others, equal on all ranks.
  RetainedWeights* retained_weights = nullptr;
  std::uint64_t frozen_source = 0;
  // Called as a micro-batch moves on; cheap. May be empty.
  std::function<void(TrainPhase)> on_phase;
  Tracer* tracer = nullptr;  // outlives the engine; null: no tracing
  // Made for this rank's PlanSegment (state_plan.h); outlives the engine. Its newest slot is the
  // state to begin with, where the state lies in it (ShardState::in_segment). Null: no snapshots.
  Segment* segment = nullptr;
  std::int64_t snapshot_every = 1;  // steps
};

// Numbers of one step, equal on all ranks.
struct StepNumbers {
  double loss = 0;       // mean over the label tokens of all ranks and micro-batches
  double grad_norm = 0;  // before clipping, loss scale taken off
  double votes = 0;      // of all ranks, added up
  // fp16 gradients went beyond their range: OptimizerStep changes nothing, the loss scale is
  // halved, and the gradient norm means nothing.
  bool overflow = false;

  bool finite() const;
};

// Of rows that were only looked at, over all ranks, and equal on them.
struct EvalNumbers {
  double loss = 0;           // mean over the labels; NaN where there are none
  std::int64_t labels = 0;   // tokens that were to be predicted
  std::int64_t correct = 0;  // of them, those than which the model finds no other more likely

  double perplexity() const;
  double accuracy() const;  // 0 to 1; 0 where there are no labels
};

// A gradient of one rank alone.
struct OwnGradient {
  int micro_batch = -1;  // of this rank, from 0; -1: none
  std::string tensor;
};

// What a resumed run needs beside the arrays.
struct LossScaleState {
  double scale = 1;
  std::int64_t finite_steps = 0;
};

// Bytes that this rank has allocated.
struct EngineMemory {
  std::int64_t frozen = 0;       // shards of what is not trained, where not in `gathered`
  std::int64_t state = 0;        // master weights, moments, gradient shards, low-precision copies
  std::int64_t snapshots = 0;    // both slots of the segment; the state itself may lie in them
  std::int64_t gathered = 0;     // whole weights, where no shared array holds them
  std::int64_t gradients = 0;    // slots and local sums
  std::int64_t activations = 0;  // so far
};

class FsdpEngine {
 public:
  // Collective. The communicator is formed; it and `ops` outlive the engine.
  static Result<std::unique_ptr<FsdpEngine>> Create(const ModelConfig& config,
                                                    Communicator& communicator, DeviceOps& ops,
                                                    FsdpOptions options);
  virtual ~FsdpEngine() = default;

  // The layout of the trained tensors.
  virtual const FlatLayout& layout() const = 0;
  // The arrays to load a model or a checkpoint into; call WeightsLoaded afterwards.
  virtual const ShardState& state() const = 0;
  virtual void WeightsLoaded() = 0;
  // Collective: reads the tensors that are not trained, which no checkpoint holds, where there are
  // any and not all ranks have them on their shelves. `model` is null on a rank that has no files;
  // errors are FrozenWeights::Load's.
  virtual Status LoadFrozen(const SafetensorsModel* model,
                            const std::function<void()>& on_read) = 0;
  // They were on the shelves of all ranks.
  virtual bool frozen_kept() const = 0;
  // Elements of the whole model, trained or not.
  virtual std::int64_t parameter_count() const = 0;
  // Whether this rank's arrays are those that count, or another replica's are (hybrid_shard,
  // no_shard): what replicas hold is equal bit for bit.
  virtual bool is_first_replica() const = 0;
  // The shard group of this rank; null where it has no peers.
  virtual Communicator* shard_group() const = 0;

  // Adds the gradients of one micro-batch. `loss_scale` is 1 / label tokens of the whole step's
  // batch, and a NaN makes the loss one; `last` says that the step has no further micro-batch. A
  // batch without labels takes part with zero gradients; in one without a number adapters drop
  // nothing.
  virtual Status ForwardBackward(const MicroBatch& batch, double loss_scale, bool last) = 0;
  // Ends the reductions; the gradients of the step are complete. `vote` rides along in the same
  // small collective: whatever the ranks must agree on at this step boundary.
  virtual Result<StepNumbers> FinishGradients(double vote = 0) = 0;
  // Clips and updates. `step` counts the updates from 1; the gradients of FinishGradients are used
  // up. With cpu_offload the update may still be under way when it returns.
  virtual void OptimizerStep(Step step, double lr) = 0;
  // Between steps. Adds the losses of one batch, which may be without labels, to the evaluation
  // under way, or begins one. Every rank calls it equally often.
  virtual Status Evaluate(const MicroBatch& batch) = 0;
  // Ends the evaluation, with a small collective.
  virtual Result<EvalNumbers> FinishEvaluation() = 0;
  // Between steps: the most likely next token of each text, of the first `words` of the vocabulary,
  // as rank 0 computes it, with a small collective. All ranks give the same texts, at least one and
  // none of them empty.
  virtual Result<std::vector<std::int32_t>> NextTokens(
      const std::vector<std::vector<std::int32_t>>& texts, std::int64_t words) = 0;

  // Until state() is that of the last OptimizerStep: before its arrays are read from outside.
  virtual void WaitForUpdate() = 0;

  // The state is that of cursor.step: after WeightsLoaded, and after every step, one that was left
  // out or overflowed as well. Seals it in the segment, if there is one and the step's turn has
  // come: at once where that is one store, else at the latest within the next FinishGradients,
  // before its collective.
  virtual void Seal(const TrainCursor& cursor) = 0;
  // Collective. What state() holds from here on is undefined, and for the caller to write: another
  // state, which is never sealed. What is sealed stays as it is. No step follows.
  virtual Status ReplaceState() = 0;
  // The newest step that is sealed; -1: none.
  virtual Step SealedStep() const = 0;
  // The receiver of copies of what is sealed from here on; outlives the engine. Null: none.
  virtual void SetBuddy(Buddy* buddy) = 0;

  // Where this rank has a number that is not finite; for a step that is known to have one, after
  // its FinishGradients. None of them is collective.
  //
  // The first micro-batch of this rank, from 0, after which its own loss was not finite; -1: none.
  virtual int FirstNonFiniteLoss() = 0;
  // The first tensor of its shard of the weights, of the gradients added up over the ranks; or "".
  virtual std::string FirstNonFinite(ShardArrays arrays) = 0;
  // From here on, or no longer, its own gradients are looked through before they are added to those
  // of others, which costs a pass over them. `true` forgets what was found before.
  virtual void WatchGradients(bool watch) = 0;
  virtual const OwnGradient& first_non_finite_gradient() const = 0;

  virtual LossScaleState loss_scale() const = 0;
  virtual void RestoreLossScale(const LossScaleState& state) = 0;
  virtual EngineMemory memory() const = 0;
};

}  // namespace muster
