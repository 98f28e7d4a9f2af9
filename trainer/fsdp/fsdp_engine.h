// FsdpEngine: sharded training of one model on one rank (FSDP).
//
// Parameters lie in flat arrays, one for each FSDP unit, of which each rank has a shard. A step is:
// ForwardBackward for every micro-batch, which gathers unit after unit, computes, and reduces
// (schedule.h); FinishGradients; and, when its numbers are finite, OptimizerStep on the shards.
// Everything that lives longer than a micro-batch is allocated by Create, as the placement says
// (placement.h), but for the activations.
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

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/flat_layout.h"
#include "trainer/core/model_config.h"
#include "trainer/data/batch_loader.h"
#include "trainer/formats/safetensors.h"
#include "trainer/fsdp/fsdp_options.h"
#include "trainer/fsdp/loss_scaler.h"
#include "trainer/fsdp/mesh.h"
#include "trainer/fsdp/placement.h"
#include "trainer/fsdp/shard_state.h"
#include "trainer/ops/device_ops.h"

namespace muster {

class AsyncCpuOptimizer;
class Buddy;
class FrozenWeights;
class GradientReducer;
class NonFiniteFinder;
class Schedule;
class StateSnapshots;
class UnshardedParameters;
struct HeadTask;
struct LabelledPositions;

// Numbers of one step, equal on all ranks.
struct StepNumbers {
  // Mean over the label tokens of all ranks and micro-batches; where routers are kept from uneven
  // loads, with the mean over the micro-batches of what that adds.
  double loss = 0;
  double grad_norm = 0;  // before clipping, loss scale taken off
  double votes = 0;      // of all ranks, added up
  // How often each expert of each sparse layer was chosen by tokens that are no padding, one layer
  // behind the other; empty without experts.
  std::vector<double> expert_choices = {};
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

// What a resumed run needs beside the arrays.
struct LossScaleState {
  double scale = 1;
  std::int64_t finite_steps = 0;
};

// Bytes that this rank has allocated.
struct EngineMemory {
  std::int64_t frozen = 0;       // shards of what is not trained, where not in `gathered`
  std::int64_t state = 0;        // master weights, moments, gradient shards, low-precision copies
  std::int64_t snapshots = 0;    // the segment's training slots; the state itself may lie in them
  std::int64_t gathered = 0;     // whole weights, where no shared array holds them
  std::int64_t gradients = 0;    // slots and local sums
  std::int64_t activations = 0;  // of blocks, so far
  std::int64_t head = 0;         // with its chunk of logits and a tied head's gradient, so far
};

class FsdpEngine final {
 public:
  // Collective. The communicator is formed; it and `ops` outlive the engine.
  static Result<std::unique_ptr<FsdpEngine>> Create(const ModelConfig& config,
                                                    Communicator& communicator, DeviceOps& ops,
                                                    FsdpOptions options);
  ~FsdpEngine();
  FsdpEngine(const FsdpEngine&) = delete;
  FsdpEngine& operator=(const FsdpEngine&) = delete;

  // The layout of the trained tensors, and where everything lies.
  const FlatLayout& layout() const { return placement_.trained; }
  const Placement& placement() const { return placement_; }
  // The arrays to load a model or a checkpoint into; call WeightsLoaded afterwards.
  const ShardState& state() const { return *state_; }
  void WeightsLoaded();
  // Collective: reads the tensors that are not trained, which no checkpoint holds, where there are
  // any and not all ranks have them on their shelves. `model` is null on a rank that has no files;
  // errors are FrozenWeights::Load's.
  Status LoadFrozen(const SafetensorsModel* model, const std::function<void()>& on_read);
  // They were on the shelves of all ranks.
  bool frozen_kept() const;
  // Elements of the whole model, trained or not.
  std::int64_t parameter_count() const;
  // Whether this rank's arrays are those that count, or another replica's are (hybrid_shard,
  // no_shard): what replicas hold is equal bit for bit.
  bool is_first_replica() const { return mesh_.replica() == 0; }
  // The shard group of this rank; null where it has no peers.
  Communicator* shard_group() const { return mesh_.shard(); }

  // Adds the gradients of one micro-batch. `loss_scale` is 1 / label tokens of the whole step's
  // batch, and a NaN makes the loss one; `last` says that the step has no further micro-batch. A
  // batch without labels takes part with zero gradients; in one without a number adapters drop
  // nothing. `share`: 1 / micro-batches of the step over all ranks, which the balance of experts is
  // the mean of.
  Status ForwardBackward(const MicroBatch& batch, double loss_scale, bool last, double share = 1);
  // Ends the reductions; the gradients of the step are complete. `vote` rides along in the same
  // small collective: whatever the ranks must agree on at this step boundary.
  Result<StepNumbers> FinishGradients(double vote = 0);
  // Clips and updates. `step` counts the updates from 1; the gradients of FinishGradients are used
  // up. With cpu_offload the update may still be under way when it returns.
  void OptimizerStep(Step step, double lr);
  // Between steps. Adds the losses of one batch, which may be without labels, to the evaluation
  // under way, or begins one. Every rank calls it equally often.
  Status Evaluate(const MicroBatch& batch);
  // Ends the evaluation, with a small collective.
  Result<EvalNumbers> FinishEvaluation();
  // Between steps: the most likely next token of each text, of the first `words` of the vocabulary,
  // as rank 0 computes it, with a small collective. All ranks give the same texts, at least one and
  // none of them empty.
  Result<std::vector<std::int32_t>> NextTokens(const std::vector<std::vector<std::int32_t>>& texts,
                                               std::int64_t words);

  // Until state() is that of the last OptimizerStep: before its arrays are read from outside.
  void WaitForUpdate();

  // The state is that of cursor.step: after WeightsLoaded, and after every step, one that was left
  // out or overflowed as well. Seals it in the segment, if there is one and the step's turn has
  // come: at once where that is one store, else at the latest within the next FinishGradients,
  // before its collective.
  void Seal(const TrainCursor& cursor);
  // Collective. What state() holds from here on is undefined, and for the caller to write: another
  // state, which is never sealed. What is sealed stays as it is. No step follows.
  Status ReplaceState();
  // The newest step that is sealed; -1: none.
  Step SealedStep() const;
  // The receiver of copies of what is sealed from here on; outlives the engine. Null: none.
  void SetBuddy(Buddy* buddy);

  // Over the last finished step.
  NonFiniteFinder& non_finite();

  LossScaleState loss_scale() const { return {scaler_.scale(), scaler_.finite_steps()}; }
  void RestoreLossScale(const LossScaleState& state) {
    scaler_.Restore(state.scale, state.finite_steps);
  }
  EngineMemory memory() const;

 private:
  // What the ranks add up at the end of a step; fp64 on the device. Choices of experts follow.
  enum Sum { kLoss, kBalance, kSquares, kVotes, kSumCount };
  // And at the end of an evaluation.
  enum EvalSum { kEvalLoss, kEvalLabels, kEvalCorrect, kEvalSumCount };

  FsdpEngine(const ModelConfig& config, Mesh mesh, DeviceOps& ops, FsdpOptions options);
  Status Allocate();
  Status RunMicroBatch(const MicroBatch& batch, bool last, double share);
  Result<StepNumbers> SumUp(double vote);
  // Forward up to the head, which is there then.
  Result<HeadTask> ForwardAlone(const MicroBatch& batch, const LabelledPositions& labelled);
  // Adds up over the ranks, in host memory.
  Status AddUp(at::Tensor& sums);
  // After an error, which it returns: the next micro-batch is the first of a step again.
  Status AbandonStep(Status error);
  // Once all units have been updated: what Seal had to leave.
  void SealUpdated();
  // What works on the shards: the device, or the host where they are offloaded.
  DeviceOps& state_ops() const { return host_ops_ != nullptr ? *host_ops_ : ops_; }
  void EnterPhase(TrainPhase phase) const {
    if (options_.on_phase) options_.on_phase(phase);
  }

  const ModelConfig config_;
  Mesh mesh_;
  DeviceOps& ops_;
  const FsdpOptions options_;
  const Placement placement_;
  std::unique_ptr<DeviceOps> host_ops_;  // null: nothing is offloaded
  std::unique_ptr<ShardState> state_;
  std::unique_ptr<UnshardedParameters> weights_;  // ends first: gathers under way read the shards
  std::unique_ptr<FrozenWeights> frozen_;         // null: the whole model is trained
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<NonFiniteFinder> finder_;
  std::unique_ptr<StateSnapshots> snapshots_;   // null: none are made
  std::unique_ptr<AsyncCpuOptimizer> updates_;  // ends before what it updates
  std::unique_ptr<Schedule> schedule_;
  LossScaler scaler_;
  at::Tensor sums_;                      // [kSumCount, and choices of experts] fp64 on the device
  at::Tensor eval_sums_;                 // [kEvalSumCount] fp64 on the device
  at::Tensor squares_;                   // [1] fp64 where the shards are
  std::optional<TrainCursor> unsealed_;  // of the update under way
  bool step_open_ = false;
  double label_scale_ = 0;      // one over the labels of the step under way
  double gradient_factor_ = 1;  // clipping, and one over the loss scale
  bool overflow_ = false;
};

}  // namespace muster
