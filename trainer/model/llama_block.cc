#include "trainer/model/llama_block.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/ops/attention.h"
#include "trainer/ops/norm.h"
#include "trainer/ops/qk_norm.h"
#include "trainer/ops/rope.h"
#include "trainer/ops/swiglu.h"

namespace muster {
namespace {

// A device that computes in host memory has nothing to offload.
Arena::Memory MemoryOfInputs(ActivationCheckpointing level, const DeviceOps& ops) {
  const bool offload = level == ActivationCheckpointing::kFullOffload && !ops.is_host();
  return offload ? Arena::Memory::kHost : Arena::Memory::kDevice;
}

// The norm's output: where it was kept, or computed again into scratch.
const at::Tensor& NormedAgain(DeviceOps& ops, const at::Tensor& kept, const at::Tensor& sum,
                              const at::Tensor& weight, const at::Tensor& scale,
                              at::Tensor& scratch) {
  if (kept.defined()) return kept;
  ops.Run(op::RecomputeRmsNorm{sum, weight, scale, scratch});
  return scratch;
}

}  // namespace

LlamaBlocks::LlamaBlocks(const ModelConfig& config, DeviceOps& ops, at::ScalarType compute_type,
                         ActivationCheckpointing level, const BlockLora& lora)
    : config_(config),
      lora_(lora),
      heads_{.heads = config.num_attention_heads,
             .kv_heads = config.num_key_value_heads,
             .head_dim = config.head_dim,
             .window = config.sliding_window.value_or(0)},
      ops_(ops),
      recomputes_(level == ActivationCheckpointing::kFull ||
                  level == ActivationCheckpointing::kFullOffload),
      type_(compute_type),
      memory_(config, lora, ops, compute_type, level),
      inputs_(ops, static_cast<int>(config.num_hidden_layers), MemoryOfInputs(level, ops)),
      layers_(ops) {}

void LlamaBlocks::Begin(const BatchShape& shape, const at::Tensor& cos, const at::Tensor& sin,
                        std::optional<DropoutKey> dropout) {
  cos_ = cos;
  sin_ = sin;
  dropout_ = dropout;
  latest_ = -1;
  const bool fits = shape.rows == shape_.rows && shape.length == shape_.length;
  shape_ = shape;
  if (fits) return;
  memory_.Fit(shape);
  inputs_.Fit(shape.tokens(), config_.hidden_size, type_);
}

LoraPass LlamaBlocks::AdaptersOf(Matrix matrix) const {
  LoraPass pass{.form = matrix == Matrix::kQkv      ? lora_.qkv
                        : matrix == Matrix::kOutput ? lora_.output
                        : matrix == Matrix::kGateUp ? lora_.gate_up
                                                    : lora_.down};
  if (dropout_) {
    const DropoutKey of_block = PartOfKey(*dropout_, static_cast<std::uint64_t>(block_));
    pass.mask = PartOfKey(of_block, static_cast<std::uint64_t>(matrix));
  }
  return pass;
}

ResidualStream LlamaBlocks::Forward(int block, const ResidualStream& in,
                                    const BlockWeights& weights) {
  const at::NoGradGuard no_grad;
  block_ = block;
  BlockActivations& kept = memory_.Activations(block);
  at::Tensor& input = inputs_.Place(block);
  AttentionForward(in, weights, input, kept);
  inputs_.Written(block);
  FeedForwardForward(input, weights, kept);
  BlockScratch& scratch = memory_.scratch();
  ops_.Run(op::SwiGlu{kept.gate_up, scratch.feed_forward.gated});
  layers_.Forward(scratch.feed_forward.gated, weights.down, AdaptersOf(Matrix::kDown),
                  scratch.feed_forward.down_lora, scratch.delta);
  latest_ = block;
  return {.sum = kept.middle, .delta = scratch.delta};
}

void LlamaBlocks::Backward(int block, const BlockWeights& weights, const BlockGradients& gradients,
                           at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  block_ = block;
  BlockActivations& kept = memory_.Activations(block);
  at::Tensor& input = inputs_.Fetch(block);
  if (recomputes_ && latest_ != block) {
    AttentionForward({.sum = input}, weights, input, kept);
    FeedForwardForward(input, weights, kept);
  }
  latest_ = -1;
  FeedForwardBackward(weights, gradients, kept, gradient);
  AttentionBackward(input, weights, gradients, kept, gradient);
}

// From the stream to the output of attention, before its projection.
void LlamaBlocks::AttentionForward(const ResidualStream& in, const BlockWeights& weights,
                                   at::Tensor& input, BlockActivations& kept) {
  at::Tensor& normed =
      kept.input_normed.defined() ? kept.input_normed : memory_.scratch().attention.normed;
  ops_.Run(op::AddNorm{in.sum, in.delta, weights.input_norm, config_.rms_norm_eps, input, normed,
                       kept.input_scale});
  layers_.Forward(normed, weights.qkv, AdaptersOf(Matrix::kQkv), kept.qkv_lora, kept.qkv);
  if (!config_.qk_norms) ops_.Run(op::ApplyRope{kept.qkv, cos_, sin_, shape_, heads_, 1});
  ops_.Run(op::Attention{Rotated(weights, kept), shape_, heads_, kept.attended, kept.lse});
}

at::Tensor& LlamaBlocks::Rotated(const BlockWeights& weights, BlockActivations& kept) {
  if (!config_.qk_norms) return kept.qkv;
  BlockScratch::Attention& scratch = memory_.scratch().attention;
  ops_.Run(op::QkNorm{kept.qkv, weights.query_norm, weights.key_norm, config_.rms_norm_eps, heads_,
                      scratch.rotated, scratch.head_scale});
  ops_.Run(op::ApplyRope{scratch.rotated, cos_, sin_, shape_, heads_, 1});
  return scratch.rotated;
}

// From the projection of attention to gate and up, before the activation.
void LlamaBlocks::FeedForwardForward(const at::Tensor& input, const BlockWeights& weights,
                                     BlockActivations& kept) {
  BlockScratch& scratch = memory_.scratch();
  at::Tensor& normed =
      kept.middle_normed.defined() ? kept.middle_normed : scratch.feed_forward.normed;
  layers_.Forward(kept.attended, weights.output, AdaptersOf(Matrix::kOutput), kept.output_lora,
                  scratch.delta);
  ops_.Run(op::AddNorm{input, scratch.delta, weights.post_norm, config_.rms_norm_eps, kept.middle,
                       normed, kept.middle_scale});
  layers_.Forward(normed, weights.gate_up, AdaptersOf(Matrix::kGateUp), kept.gate_up_lora,
                  kept.gate_up);
}

void LlamaBlocks::FeedForwardBackward(const BlockWeights& weights, const BlockGradients& gradients,
                                      BlockActivations& kept, at::Tensor& gradient) {
  BlockScratch::FeedForward& scratch = memory_.scratch().feed_forward;
  layers_.InputGradient(gradient, weights.down, AdaptersOf(Matrix::kDown), scratch.gated_gradient);
  ops_.Run(op::SwiGluBackward{kept.gate_up, scratch.gated_gradient, scratch.gated});
  layers_.AdapterForward(scratch.gated, weights.down, AdaptersOf(Matrix::kDown), scratch.down_lora);
  layers_.ParameterGradients(gradient, scratch.gated, scratch.down_lora, AdaptersOf(Matrix::kDown),
                             gradients.down);
  const at::Tensor& gate_up_gradient = kept.gate_up;
  layers_.InputGradient(gate_up_gradient, weights.gate_up, AdaptersOf(Matrix::kGateUp),
                        scratch.normed_gradient);
  const at::Tensor& normed = NormedAgain(ops_, kept.middle_normed, kept.middle, weights.post_norm,
                                         kept.middle_scale, scratch.normed);
  layers_.ParameterGradients(gate_up_gradient, normed, kept.gate_up_lora,
                             AdaptersOf(Matrix::kGateUp), gradients.gate_up);
  ops_.Run(op::NormBackward{scratch.normed_gradient, kept.middle, weights.post_norm,
                            kept.middle_scale, gradient, gradients.post_norm});
}

void LlamaBlocks::AttentionBackward(const at::Tensor& input, const BlockWeights& weights,
                                    const BlockGradients& gradients, BlockActivations& kept,
                                    at::Tensor& gradient) {
  BlockScratch::Attention& scratch = memory_.scratch().attention;
  layers_.InputGradient(gradient, weights.output, AdaptersOf(Matrix::kOutput),
                        scratch.attended_gradient);
  layers_.ParameterGradients(gradient, kept.attended, kept.output_lora, AdaptersOf(Matrix::kOutput),
                             gradients.output);
  ops_.Run(op::AttentionBackward{Rotated(weights, kept), kept.attended, kept.lse,
                                 scratch.attended_gradient, shape_, heads_, scratch.qkv_gradient});
  ops_.Run(op::ApplyRope{scratch.qkv_gradient, cos_, sin_, shape_, heads_, -1});
  if (config_.qk_norms) {
    ops_.Run(op::QkNormBackward{kept.qkv, weights.query_norm, weights.key_norm, scratch.head_scale,
                                heads_, scratch.qkv_gradient, gradients.query_norm,
                                gradients.key_norm});
  }
  layers_.InputGradient(scratch.qkv_gradient, weights.qkv, AdaptersOf(Matrix::kQkv),
                        scratch.normed_gradient);
  const at::Tensor& normed = NormedAgain(ops_, kept.input_normed, input, weights.input_norm,
                                         kept.input_scale, scratch.normed);
  layers_.ParameterGradients(scratch.qkv_gradient, normed, kept.qkv_lora, AdaptersOf(Matrix::kQkv),
                             gradients.qkv);
  ops_.Run(op::NormBackward{scratch.normed_gradient, input, weights.input_norm, kept.input_scale,
                            gradient, gradients.input_norm});
}

std::int64_t LlamaBlocks::bytes() const {
  return memory_.bytes() + inputs_.device_bytes() + layers_.bytes();
}

}  // namespace muster
