// The transformer blocks of a model, forward and backward by hand.
//
// Products go straight into the buffers that the engine gathers into and reduces from; nothing is
// recorded and nothing is freed in between. trainer/model/llama.h is the same block as plain
// differentiable functions, the oracle of the tests and the code of inference.
//
// What forward keeps for backward depends on the level (ActivationCheckpointing): everything that
// backward reads; without the norms' outputs, which cost one pass each to make again; or the
// block's input alone, from which backward runs forward once more, all but its last product unless
// a norm follows that. The gated activation is never kept: the pass that computes its gradient
// makes it again. Every level gives the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "common/job_spec/job_spec.h"
#include "trainer/core/model_config.h"
#include "trainer/model/attention_heads.h"
#include "trainer/model/block_inputs.h"
#include "trainer/model/block_memory.h"
#include "trainer/model/block_tensors.h"
#include "trainer/model/experts.h"
#include "trainer/model/linear.h"
#include "trainer/model/lora_form.h"
#include "trainer/model/parallel_experts.h"
#include "trainer/model/residual_stream.h"
#include "trainer/model/rotary_table.h"
#include "trainer/model/router.h"
#include "trainer/model/shared_expert.h"
#include "trainer/model/sublayer_norm.h"
#include "trainer/ops/device_ops.h"
#include "trainer/ops/dropout.h"

namespace muster {

// The blocks of one model on one device, with all memory that their activations need; it grows to
// the largest batch and stays. Owned by the engine; the trainer's thread. Shape and type errors
// are Torch exceptions.
class LlamaBlocks {
 public:
  // `ops` outlives the object. T is `compute_type`: fp64, fp32, bf16 or fp16. `expert_group`: the
  // ranks that the experts of each layer are divided among, which it outlives too; null: this one
  // has all.
  LlamaBlocks(const ModelConfig& config, DeviceOps& ops, at::ScalarType compute_type,
              ActivationCheckpointing level, const BlockLora& lora = {},
              Communicator* expert_group = nullptr);

  // A micro-batch begins. The angles are W. `dropout`: the micro-batch's own key, of which every
  // matrix of every block has a part; nothing: nothing is dropped, as in evaluation. `real` [N] W:
  // 0 for padding, which does not count among the experts' loads, and 1 for other tokens;
  // undefined: there is no padding.
  void Begin(const BatchShape& shape, const LayerAngles& angles,
             std::optional<DropoutKey> dropout = {}, const at::Tensor& real = {});

  // [N, H]: where the caller may write the hidden states that enter block 0, and pass it to
  // Forward as the stream's sum; any other tensor is copied there.
  at::Tensor& FirstInput() { return inputs_.Place(0); }

  // Of block `block` (counted from 0), in order. The result is valid until the next Forward or
  // Backward of any block.
  ResidualStream Forward(int block, const ResidualStream& in, const BlockWeights& weights);

  // A sparse block in two calls: up to its experts, whose weights need not be there, and these
  // alone. Backward of the same is three: ForwardAgain with the weights of the first part, which
  // does nothing where all activations are kept, and the two parts in reverse order.
  void ForwardToExperts(int block, const ResidualStream& in, const BlockWeights& weights);
  ResidualStream ForwardExperts(int block, const BlockWeights& weights);
  void ForwardAgain(int block, const BlockWeights& weights);
  // Whether it does something.
  bool MustRunAgain(int block) const { return recomputes_ && latest_ != block; }
  void BackwardExperts(int block, const BlockWeights& weights, const BlockGradients& gradients,
                       const at::Tensor& gradient);
  void BackwardToExperts(int block, const BlockWeights& weights, const BlockGradients& gradients,
                         at::Tensor& gradient);

  // All blocks have gone forward: how often each expert of each sparse layer was chosen by tokens
  // that are no padding, [sparse layers, E] fp64 on the device. Undefined without experts.
  at::Tensor ExpertChoices() const { return balance_ ? balance_->choices() : at::Tensor(); }

  // All blocks have gone forward: the loss by which routers are kept from uneven loads, fp64 on the
  // device, unscaled; from here on it has its part in their gradients, times `factor`. Undefined
  // where the model asks for none.
  at::Tensor BalanceLoss(double factor);

  // gradient [N, H]: of the stream that left the block, becomes that of the stream that came in.
  // Blocks go backward in reverse order, each once per Begin. Where a target has no tensor, that
  // weight is frozen.
  void Backward(int block, const BlockWeights& weights, const BlockGradients& gradients,
                at::Tensor& gradient);

  // The first error of an exchange with experts on other ranks: after it nothing is exchanged, and
  // results mean nothing.
  Status status() const { return parallel_ ? parallel_->status() : OkStatus(); }

  // Bytes held on the device for activations and scratch, and in host memory beside it.
  std::int64_t bytes() const;
  std::int64_t host_bytes() const { return inputs_.host_bytes(); }

 private:
  // Their numbers are part of what a mask is a function of.
  enum class Matrix { kQkv, kOutput, kGateUp, kDown, kSharedExpertGate };
  // The block at work is meant.
  const LoraForm& FormOf(Matrix matrix) const;
  LoraPass AdaptersOf(Matrix matrix) const;
  SharedExpertLora SharedAdapters() const {
    return {AdaptersOf(Matrix::kGateUp), AdaptersOf(Matrix::kDown),
            AdaptersOf(Matrix::kSharedExpertGate)};
  }

  void AttentionForward(const ResidualStream& in, const BlockWeights& weights, at::Tensor& input,
                        BlockActivations& kept);
  // The rotated query, key and value: where they are kept, or made of what is kept.
  at::Tensor& Rotated(const BlockWeights& weights, BlockActivations& kept);
  // Turns by the positions' angles (direction 1) or back (-1), where the block at work does that.
  void RotateByPosition(at::Tensor& qkv, int direction);
  // Those of the block at work.
  AttentionHeads Heads() const { return HeadsOf(config_, block_); }
  // From there to what feed-forward reads.
  const at::Tensor& EnterFeedForward(const at::Tensor& input, const BlockWeights& weights,
                                     BlockActivations& kept);
  void FeedForwardForward(const at::Tensor& input, const BlockWeights& weights,
                          BlockActivations& kept);
  // From gate and up to what is added to the stream.
  at::Tensor& FeedForwardOutput(const BlockWeights& weights, BlockActivations& kept);
  void FeedForwardBackward(const BlockWeights& weights, const BlockGradients& gradients,
                           BlockActivations& kept, at::Tensor& gradient);
  void AttentionBackward(const at::Tensor& input, const BlockWeights& weights,
                         const BlockGradients& gradients, BlockActivations& kept,
                         at::Tensor& gradient);

  const ModelConfig config_;
  const BlockLora lora_;
  DeviceOps& ops_;
  const bool recomputes_;  // backward begins with forward
  BatchShape shape_;
  LayerAngles angles_;
  std::optional<DropoutKey> dropout_;  // of the micro-batch
  int block_ = 0;                      // at work
  const at::ScalarType type_;
  BlockMemory memory_;
  BlockInputs inputs_;
  LinearOps layers_;
  const SublayerNorm norm_;
  std::optional<Router> router_;        // nothing: no layer is sparse
  std::optional<SharedExpert> shared_;  // nothing: the model has none
  Experts experts_;
  std::optional<ParallelExperts> parallel_;  // nothing: this rank has all experts
  std::optional<LoadBalance> balance_;       // nothing: no layer is sparse
  at::Tensor balance_gradient_;  // [N, E] W, of each router's probabilities; undefined: none
  int latest_ = -1;  // the block whose forward ran last: its activations need no second one
};

}  // namespace muster
