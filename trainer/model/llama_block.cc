#include "trainer/model/llama_block.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "common/base/check.h"
#include "trainer/ops/attention.h"
#include "trainer/ops/geglu.h"
#include "trainer/ops/norm.h"
#include "trainer/ops/qk_norm.h"
#include "trainer/ops/rope.h"
#include "trainer/ops/scalar_type.h"
#include "trainer/ops/swiglu.h"

namespace muster {
namespace {

// A device that computes in host memory has nothing to offload.
Arena::Memory MemoryOfInputs(ActivationCheckpointing level, const DeviceOps& ops) {
  const bool offload = level == ActivationCheckpointing::kFullOffload && !ops.is_host();
  return offload ? Arena::Memory::kHost : Arena::Memory::kDevice;
}

}  // namespace

LlamaBlocks::LlamaBlocks(const ModelConfig& config, DeviceOps& ops, at::ScalarType compute_type,
                         ActivationCheckpointing level, const BlockLora& lora,
                         Communicator* expert_group)
    : config_(config),
      lora_(lora),
      ops_(ops),
      recomputes_(level == ActivationCheckpointing::kFull ||
                  level == ActivationCheckpointing::kFullOffload),
      type_(compute_type),
      memory_(config, lora, ops, compute_type, level, expert_group != nullptr),
      inputs_(ops, static_cast<int>(config.num_hidden_layers), MemoryOfInputs(level, ops)),
      layers_(ops),
      norm_(config, ops),
      experts_(config, ops, lora) {
  if (config.SparseLayers() == 0) return;
  MUSTER_CHECK(config.norm_placement == NormPlacement::kBefore, "no mixture has a norm after it");
  MUSTER_CHECK(config.residual_multiplier == 1, "no mixture's output has a multiplier");
  router_.emplace(config, ops);
  if (config.experts->shared_intermediate_size > 0) shared_.emplace(ops, layers_);
  balance_.emplace(config);
  if (expert_group != nullptr) {
    parallel_.emplace(config, lora, *expert_group, ops, compute_type, memory_.places());
  }
}

void LlamaBlocks::Begin(const BatchShape& shape, const LayerAngles& angles,
                        std::optional<DropoutKey> dropout, const at::Tensor& real) {
  angles_ = angles;
  dropout_ = dropout;
  latest_ = -1;
  const auto all = at::TensorOptions(WideType(type_)).device(ops_.device());
  if (balance_) balance_->Begin(real.defined() ? real : at::ones({shape.tokens()}, all));
  balance_gradient_.reset();
  const bool fits = shape.rows == shape_.rows && shape.length == shape_.length;
  shape_ = shape;
  if (fits) return;
  memory_.Fit(shape);
  inputs_.Fit(shape.tokens(), config_.hidden_size, type_);
}

const LoraForm& LlamaBlocks::FormOf(Matrix matrix) const {
  const bool shared = config_.IsSparse(block_);
  switch (matrix) {
    case Matrix::kQkv: return lora_.qkv;
    case Matrix::kOutput: return lora_.output;
    case Matrix::kGateUp: return shared ? lora_.shared_gate_up : lora_.gate_up;
    case Matrix::kDown: return shared ? lora_.shared_down : lora_.down;
    case Matrix::kSharedExpertGate: break;
  }
  return lora_.shared_gate;
}

LoraPass LlamaBlocks::AdaptersOf(Matrix matrix) const {
  LoraPass pass{.form = FormOf(matrix)};
  if (dropout_) {
    const DropoutKey of_block = PartOfKey(*dropout_, static_cast<std::uint64_t>(block_));
    pass.mask = PartOfKey(of_block, static_cast<std::uint64_t>(matrix));
  }
  return pass;
}

ResidualStream LlamaBlocks::Forward(int block, const ResidualStream& in,
                                    const BlockWeights& weights) {
  if (config_.IsSparse(block)) {
    ForwardToExperts(block, in, weights);
    return ForwardExperts(block, weights);
  }
  const at::NoGradGuard no_grad;
  block_ = block;
  BlockActivations& kept = memory_.Activations(block);
  at::Tensor& input = inputs_.Place(block);
  AttentionForward(in, weights, input, kept);
  inputs_.Written(block);
  FeedForwardForward(input, weights, kept);
  latest_ = block;
  return {.sum = kept.middle, .delta = FeedForwardOutput(weights, kept)};
}

void LlamaBlocks::Backward(int block, const BlockWeights& weights, const BlockGradients& gradients,
                           at::Tensor& gradient) {
  if (config_.IsSparse(block)) {
    ForwardAgain(block, weights);
    BackwardExperts(block, weights, gradients, gradient);
    return BackwardToExperts(block, weights, gradients, gradient);
  }
  const at::NoGradGuard no_grad;
  block_ = block;
  BlockActivations& kept = memory_.Activations(block);
  at::Tensor& input = inputs_.Fetch(block);
  if (MustRunAgain(block)) {
    AttentionForward({.sum = input}, weights, input, kept);
    FeedForwardForward(input, weights, kept);
    if (config_.norm_placement != NormPlacement::kBefore) FeedForwardOutput(weights, kept);
  }
  latest_ = -1;
  FeedForwardBackward(weights, gradients, kept, gradient);
  AttentionBackward(input, weights, gradients, kept, gradient);
}

void LlamaBlocks::ForwardToExperts(int block, const ResidualStream& in,
                                   const BlockWeights& weights) {
  const at::NoGradGuard no_grad;
  block_ = block;
  BlockActivations& kept = memory_.Activations(block);
  at::Tensor& input = inputs_.Place(block);
  AttentionForward(in, weights, input, kept);
  inputs_.Written(block);
  const at::Tensor& entered = EnterFeedForward(input, weights, kept);
  router_->Forward(entered, weights, memory_.scratch().sparse.logits, kept.routing);
  balance_->Add(kept.routing);
  if (!shared_) return;
  SharedExpertScratch& shared = memory_.scratch().sparse.shared;
  const SharedExpertLora adapters = SharedAdapters();
  shared_->Enter(entered, weights, adapters, shared, kept.shared);
  shared_->Output(weights, adapters, kept.shared, shared);
}

ResidualStream LlamaBlocks::ForwardExperts(int block, const BlockWeights& weights) {
  const at::NoGradGuard no_grad;
  BlockActivations& kept = memory_.Activations(block);
  BlockScratch& scratch = memory_.scratch();
  latest_ = block;
  if (parallel_) {
    parallel_->Gather(block, kept.feed_forward_norm.normed, weights, kept.routing,
                      scratch.sparse.experts);
    parallel_->Output(block, weights, kept.routing, scratch.sparse.experts, scratch.delta);
  } else {
    experts_.GateUp(kept.feed_forward_norm.normed, weights, kept.routing, scratch.sparse.experts,
                    kept.expert_gate_up);
    experts_.Output(weights, kept.routing, kept.expert_gate_up, scratch.sparse.experts,
                    scratch.delta);
  }
  if (shared_) scratch.delta.add_(scratch.sparse.shared.output);
  return {.sum = kept.middle, .delta = scratch.delta};
}

void LlamaBlocks::ForwardAgain(int block, const BlockWeights& weights) {
  if (!MustRunAgain(block)) return;
  const at::NoGradGuard no_grad;
  block_ = block;
  BlockActivations& kept = memory_.Activations(block);
  at::Tensor& input = inputs_.Fetch(block);
  AttentionForward({.sum = input}, weights, input, kept);
  const at::Tensor& entered = EnterFeedForward(input, weights, kept);
  router_->Forward(entered, weights, memory_.scratch().sparse.logits, kept.routing);
  if (shared_)
    shared_->Enter(entered, weights, SharedAdapters(), memory_.scratch().sparse.shared,
                   kept.shared);
}

void LlamaBlocks::BackwardExperts(int block, const BlockWeights& weights,
                                  const BlockGradients& gradients, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  BlockActivations& kept = memory_.Activations(block);
  BlockScratch::SparseFeedForward& scratch = memory_.scratch().sparse;
  const at::Tensor& entered = kept.feed_forward_norm.normed;
  if (parallel_) {
    if (MustRunAgain(block)) {
      parallel_->Gather(block, entered, weights, kept.routing, scratch.experts);
    }
    return parallel_->Backward(block, gradient, weights, gradients, kept.routing, scratch.experts,
                               scratch.normed_gradient);
  }
  if (MustRunAgain(block)) {
    experts_.GateUp(entered, weights, kept.routing, scratch.experts, kept.expert_gate_up);
  }
  experts_.Backward(entered, gradient, weights, gradients, kept.routing, scratch.experts,
                    kept.expert_gate_up, scratch.normed_gradient);
}

void LlamaBlocks::BackwardToExperts(int block, const BlockWeights& weights,
                                    const BlockGradients& gradients, at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  block_ = block;
  BlockActivations& kept = memory_.Activations(block);
  BlockScratch::SparseFeedForward& scratch = memory_.scratch().sparse;
  at::Tensor& input = MustRunAgain(block) ? inputs_.Place(block) : inputs_.Fetch(block);
  latest_ = -1;
  router_->Backward(kept.feed_forward_norm.normed, weights, kept.routing,
                    scratch.experts.row_gradients, balance_gradient_, scratch.logits, gradients,
                    scratch.normed_gradient);
  if (shared_)
    shared_->Backward(kept.feed_forward_norm.normed, gradient, weights, SharedAdapters(), gradients,
                      scratch.shared, kept.shared, scratch.normed_gradient);
  norm_.Entered(scratch.normed_gradient, kept.feed_forward_norm, kept.middle,
                weights.feed_forward_norm, gradients.feed_forward_norm, gradient);
  AttentionBackward(input, weights, gradients, kept, gradient);
}

at::Tensor LlamaBlocks::BalanceLoss(double factor) {
  if (!router_ || config_.experts->balance_coefficient == 0) return {};
  const at::NoGradGuard no_grad;
  balance_gradient_ = balance_->Gradient(factor);
  return balance_->Loss();
}

// From the stream to the output of attention, before its projection.
void LlamaBlocks::AttentionForward(const ResidualStream& in, const BlockWeights& weights,
                                   at::Tensor& input, BlockActivations& kept) {
  const at::Tensor& entered = norm_.Enter(in, weights.attention_norm, kept.attention_norm, input,
                                          memory_.scratch().attention.normed);
  layers_.Forward(entered, weights.qkv, AdaptersOf(Matrix::kQkv), kept.qkv_lora, kept.qkv);
  if (config_.qk_norms == QkNorms::kNone) RotateByPosition(kept.qkv, 1);
  ops_.Run(op::Attention{Rotated(weights, kept), shape_, Heads(), kept.attended, kept.lse,
                         weights.sinks});
}

void LlamaBlocks::RotateByPosition(at::Tensor& qkv, int direction) {
  if (!config_.Rotates(block_)) return;
  const bool own = angles_.windowed.cos.defined() && config_.WindowOf(block_).has_value();
  const RotaryAngles& angles = own ? angles_.windowed : angles_.all;
  // A row of angles for each token is found by its place among all tokens.
  const BatchShape shape =
      angles.by_token ? BatchShape{.rows = 1, .length = shape_.tokens()} : shape_;
  ops_.Run(op::ApplyRope{qkv, angles.cos, angles.sin, shape, Heads(), direction});
}

at::Tensor& LlamaBlocks::Rotated(const BlockWeights& weights, BlockActivations& kept) {
  if (config_.qk_norms == QkNorms::kNone) return kept.qkv;
  BlockScratch::Attention& scratch = memory_.scratch().attention;
  ops_.Run(op::QkNorm{kept.qkv, weights.query_norm, weights.key_norm, config_.rms_norm_eps, Heads(),
                      scratch.rotated, scratch.head_scale, config_.zero_centered_norms});
  RotateByPosition(scratch.rotated, 1);
  return scratch.rotated;
}

const at::Tensor& LlamaBlocks::EnterFeedForward(const at::Tensor& input,
                                                const BlockWeights& weights,
                                                BlockActivations& kept) {
  BlockScratch& scratch = memory_.scratch();
  layers_.Forward(kept.attended, weights.output, AdaptersOf(Matrix::kOutput), kept.output_lora,
                  norm_.OutputPlace(kept.attention_norm, scratch.delta));
  norm_.Leave(weights.attention_output_norm, kept.attention_norm, scratch.delta);
  return norm_.Enter({.sum = input, .delta = scratch.delta}, weights.feed_forward_norm,
                     kept.feed_forward_norm, kept.middle, scratch.feed_forward.normed);
}

// From the projection of attention to gate and up, before the activation.
void LlamaBlocks::FeedForwardForward(const at::Tensor& input, const BlockWeights& weights,
                                     BlockActivations& kept) {
  layers_.Forward(EnterFeedForward(input, weights, kept), weights.gate_up,
                  AdaptersOf(Matrix::kGateUp), kept.gate_up_lora, kept.gate_up);
}

at::Tensor& LlamaBlocks::FeedForwardOutput(const BlockWeights& weights, BlockActivations& kept) {
  BlockScratch& scratch = memory_.scratch();
  at::Tensor& gated = scratch.feed_forward.gated;
  switch (config_.activation) {
    case Activation::kSilu: ops_.Run(op::SwiGlu{kept.gate_up, gated}); break;
    case Activation::kGeluTanh: ops_.Run(op::GeGlu{kept.gate_up, gated}); break;
  }
  layers_.Forward(gated, weights.down, AdaptersOf(Matrix::kDown), scratch.feed_forward.down_lora,
                  norm_.OutputPlace(kept.feed_forward_norm, scratch.delta));
  norm_.Leave(weights.feed_forward_output_norm, kept.feed_forward_norm, scratch.delta);
  return scratch.delta;
}

void LlamaBlocks::FeedForwardBackward(const BlockWeights& weights, const BlockGradients& gradients,
                                      BlockActivations& kept, at::Tensor& gradient) {
  BlockScratch::FeedForward& scratch = memory_.scratch().feed_forward;
  at::Tensor& output_gradient =
      norm_.Returned(kept.feed_forward_norm, weights.feed_forward_output_norm,
                     gradients.feed_forward_output_norm, gradient, memory_.scratch().delta);
  layers_.InputGradient(output_gradient, weights.down, AdaptersOf(Matrix::kDown),
                        scratch.gated_gradient);
  switch (config_.activation) {
    case Activation::kSilu:
      ops_.Run(op::SwiGluBackward{kept.gate_up, scratch.gated_gradient, scratch.gated});
      break;
    case Activation::kGeluTanh:
      ops_.Run(op::GeGluBackward{kept.gate_up, scratch.gated_gradient, scratch.gated});
      break;
  }
  layers_.AdapterForward(scratch.gated, weights.down, AdaptersOf(Matrix::kDown), scratch.down_lora);
  layers_.ParameterGradients(output_gradient, scratch.gated, scratch.down_lora,
                             AdaptersOf(Matrix::kDown), gradients.down);
  const at::Tensor& gate_up_gradient = kept.gate_up;
  layers_.InputGradient(gate_up_gradient, weights.gate_up, AdaptersOf(Matrix::kGateUp),
                        scratch.normed_gradient);
  const at::Tensor& entered = norm_.InputAgain(kept.feed_forward_norm, kept.middle,
                                               weights.feed_forward_norm, scratch.normed);
  layers_.ParameterGradients(gate_up_gradient, entered, kept.gate_up_lora,
                             AdaptersOf(Matrix::kGateUp), gradients.gate_up);
  norm_.Entered(scratch.normed_gradient, kept.feed_forward_norm, kept.middle,
                weights.feed_forward_norm, gradients.feed_forward_norm, gradient);
}

void LlamaBlocks::AttentionBackward(const at::Tensor& input, const BlockWeights& weights,
                                    const BlockGradients& gradients, BlockActivations& kept,
                                    at::Tensor& gradient) {
  BlockScratch::Attention& scratch = memory_.scratch().attention;
  at::Tensor& output_gradient =
      norm_.Returned(kept.attention_norm, weights.attention_output_norm,
                     gradients.attention_output_norm, gradient, memory_.scratch().delta);
  layers_.InputGradient(output_gradient, weights.output, AdaptersOf(Matrix::kOutput),
                        scratch.attended_gradient);
  layers_.ParameterGradients(output_gradient, kept.attended, kept.output_lora,
                             AdaptersOf(Matrix::kOutput), gradients.output);
  ops_.Run(op::AttentionBackward{Rotated(weights, kept), kept.attended, kept.lse,
                                 scratch.attended_gradient, shape_, Heads(), scratch.qkv_gradient,
                                 weights.sinks, gradients.sinks});
  RotateByPosition(scratch.qkv_gradient, -1);
  if (config_.qk_norms != QkNorms::kNone) {
    ops_.Run(op::QkNormBackward{kept.qkv, weights.query_norm, weights.key_norm, scratch.head_scale,
                                Heads(), scratch.qkv_gradient, gradients.query_norm,
                                gradients.key_norm, config_.zero_centered_norms});
  }
  layers_.InputGradient(scratch.qkv_gradient, weights.qkv, AdaptersOf(Matrix::kQkv),
                        scratch.normed_gradient);
  const at::Tensor& entered =
      norm_.InputAgain(kept.attention_norm, input, weights.attention_norm, scratch.normed);
  layers_.ParameterGradients(scratch.qkv_gradient, entered, kept.qkv_lora, AdaptersOf(Matrix::kQkv),
                             gradients.qkv);
  norm_.Entered(scratch.normed_gradient, kept.attention_norm, input, weights.attention_norm,
                gradients.attention_norm, gradient);
}

std::int64_t LlamaBlocks::bytes() const {
  return memory_.bytes() + inputs_.device_bytes() + layers_.bytes() + experts_.bytes() +
         (parallel_ ? parallel_->bytes() : 0) + (balance_ ? balance_->bytes() : 0);
}

}  // namespace muster
