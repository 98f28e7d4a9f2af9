// Schedule: the way of one micro-batch through the FSDP units of a model, forward and back. Units
// are gathered ahead of the computation and reduced behind it.
//
// With units 0 (embedding), 1 .. n (blocks), n+1 (head):
//
//   forward   gather(u + 1) starts, then unit u computes as soon as its own gather has ended
//   loss      head, forward and backward at once; reduce(head) starts
//   backward  gather(u - 1) starts, then the blocks of unit u go backward, their products written
//             into the flat gradient slot; reduce(u) starts
//   end       the embedding's gradient; reduce(embed) starts
//
// A block with a mixture of experts is two units: these follow its other weights. Where
// backward computes blocks again, it begins with the experts' unit and has both units then.
//
// The last two block units are still gathered when backward begins, the first two when the next
// micro-batch does. Activations are as large as the largest micro-batch seen.
//
// Belongs to an engine; the trainer's thread. Errors are the communicator's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/batch_loader.h"
#include "trainer/fsdp/async_cpu_optimizer.h"
#include "trainer/fsdp/frozen_weights.h"
#include "trainer/fsdp/fsdp_options.h"
#include "trainer/fsdp/gradient_reducer.h"
#include "trainer/fsdp/non_finite.h"
#include "trainer/fsdp/placement.h"
#include "trainer/fsdp/step_batch.h"
#include "trainer/fsdp/unit_views.h"
#include "trainer/fsdp/unsharded_parameters.h"
#include "trainer/model/llama.h"
#include "trainer/model/llama_block.h"
#include "trainer/model/llama_head.h"

namespace muster {

// What moves the units' weights and gradients.
struct UnitMovers {
  UnshardedParameters& weights;
  FrozenWeights* frozen;  // null: the whole model is trained
  GradientReducer& reducer;
  AsyncCpuOptimizer* updates;  // that a gather waits for; null: they are made at once
  NonFiniteFinder& finder;
  Communicator* experts;  // that a layer's experts are divided among; null: they are not
};

// How a micro-batch's balance of experts counts among the losses.
struct BalanceTask {
  double share = 0;  // of the micro-batch in the step's loss: its coefficient is the model's
  double gradient_scale = 1;  // the loss scale
};

class Schedule {
 public:
  // All outlive the object.
  Schedule(const ModelConfig& config, const Placement& placement, const FsdpOptions& options,
           DeviceOps& ops, const UnitMovers& movers);

  // Through all blocks: what the head has to do, whose weights are there then. Good until the next
  // call of either.
  Result<HeadTask> Forward(const MicroBatch& batch, const LabelledPositions& labelled);
  // From the head back. `loss` (fp64 on the device) grows by the unscaled sum of the losses, and
  // `balance_loss` by that of the experts' balance, scaled; `task` is Forward's, with its scale.
  // `last`: the step has no further micro-batch.
  Status Backward(HeadTask task, const BalanceTask& balance, at::Tensor& loss,
                  at::Tensor& balance_loss, bool last);

  // The choices of Forward's micro-batch (LlamaBlocks).
  at::Tensor ExpertChoices() const { return blocks_.ExpertChoices(); }
  LlamaHead& head() { return head_; }
  std::int64_t activation_bytes() const { return blocks_.bytes(); }
  // Those of the head, with its chunk of logits and a tied head's gradient.
  std::int64_t head_bytes() const {
    return head_.bytes() +
           static_cast<std::int64_t>(tied_gradient_.defined() ? tied_gradient_.nbytes() : 0);
  }

 private:
  int head_unit() const { return static_cast<int>(layout_.units().size()) - 1; }
  TraceSpan Span(TracePhase phase, int unit) const {
    return TraceSpan(options_.tracer, phase, layout_.units()[unit].name, unit);
  }
  void Prefetch(int unit);
  Status Wait(int unit);
  // Gives `compute` the targets of the unit's gradients, and sends these off.
  template <typename Compute>
  Status Reducing(int unit, TracePhase phase, Compute compute);
  void BlocksForward(int unit, ResidualStream* stream);
  // What must run again before the unit goes back and needs another unit's weights.
  Status RunAgain(int unit);
  void BlocksBackward(int unit, const UnitGradients& gradients, at::Tensor& gradient);
  void EmbeddingBackward(const UnitGradients& gradients, at::Tensor& gradient);
  std::optional<DropoutKey> MaskOf(const MicroBatch& batch) const;
  // LlamaBlocks::Begin's `real`.
  at::Tensor RealTokens(const MicroBatch& batch) const;
  at::Tensor OnDevice(const std::vector<std::int64_t>& values) const;

  const ModelConfig& config_;
  const FlatLayout& layout_;
  const std::vector<FlatUnit>& parts_;
  const FsdpOptions& options_;
  DeviceOps& ops_;
  const UnitMovers movers_;
  std::vector<UnitWeights> weights_;  // by unit: what is gathered, trained or frozen
  LlamaBlocks blocks_;
  LlamaHead head_;
  RotaryTables rotary_;
  const double embedding_multiplier_;
  at::Tensor ids_;            // of the micro-batch
  at::Tensor tied_gradient_;  // of the embedding by way of the head; undefined: they are not tied
  bool last_ = false;         // of the step
};

}  // namespace muster
