#include "trainer/model/llama_block.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

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
  ops.NormAgain(sum, weight, scale, scratch);
  return scratch;
}

}  // namespace

LlamaBlocks::LlamaBlocks(const ModelConfig& config, DeviceOps& ops, at::ScalarType compute_type,
                         ActivationCheckpointing level)
    : config_(config),
      heads_{.heads = config.num_attention_heads,
             .kv_heads = config.num_key_value_heads,
             .head_dim = config.head_dim},
      ops_(ops),
      recomputes_(level == ActivationCheckpointing::kFull ||
                  level == ActivationCheckpointing::kFullOffload),
      type_(compute_type),
      memory_(config, ops, compute_type, level),
      inputs_(ops, static_cast<int>(config.num_hidden_layers), MemoryOfInputs(level, ops)),
      weight_gradient_(ops) {}

void LlamaBlocks::Begin(const BatchShape& shape, const at::Tensor& cos, const at::Tensor& sin) {
  cos_ = cos;
  sin_ = sin;
  latest_ = -1;
  const bool fits = shape.rows == shape_.rows && shape.length == shape_.length;
  shape_ = shape;
  if (fits) return;
  memory_.Fit(shape);
  inputs_.Fit(shape.tokens(), config_.hidden_size, type_);
}

ResidualStream LlamaBlocks::Forward(int block, const ResidualStream& in,
                                    const BlockWeights& weights) {
  const at::NoGradGuard no_grad;
  BlockActivations& kept = memory_.Activations(block);
  at::Tensor& input = inputs_.Place(block);
  AttentionForward(in, weights, input, kept);
  inputs_.Written(block);
  FeedForwardForward(input, weights, kept);
  BlockScratch& scratch = memory_.scratch();
  ops_.GatedSilu(kept.gate_up, scratch.feed_forward.gated);
  LinearForward(scratch.feed_forward.gated, weights.down, scratch.delta);
  latest_ = block;
  return {.sum = kept.middle, .delta = scratch.delta};
}

void LlamaBlocks::Backward(int block, const BlockWeights& weights, const BlockGradients& gradients,
                           at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
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
  ops_.AddNorm(in.sum, in.delta, weights.input_norm, config_.rms_norm_eps, input, normed,
               kept.input_scale);
  LinearForward(normed, weights.qkv, kept.qkv);
  ops_.Rotate(kept.qkv, cos_, sin_, shape_, heads_, 1);
  ops_.Attention(kept.qkv, shape_, heads_, kept.attended, kept.lse);
}

// From the projection of attention to gate and up, before the activation.
void LlamaBlocks::FeedForwardForward(const at::Tensor& input, const BlockWeights& weights,
                                     BlockActivations& kept) {
  BlockScratch& scratch = memory_.scratch();
  at::Tensor& normed =
      kept.middle_normed.defined() ? kept.middle_normed : scratch.feed_forward.normed;
  LinearForward(kept.attended, weights.output, scratch.delta);
  ops_.AddNorm(input, scratch.delta, weights.post_norm, config_.rms_norm_eps, kept.middle, normed,
               kept.middle_scale);
  LinearForward(normed, weights.gate_up, kept.gate_up);
}

void LlamaBlocks::FeedForwardBackward(const BlockWeights& weights, const BlockGradients& gradients,
                                      BlockActivations& kept, at::Tensor& gradient) {
  BlockScratch::FeedForward& scratch = memory_.scratch().feed_forward;
  LinearInputGradient(gradient, weights.down, scratch.gated_gradient);
  ops_.GatedSiluBackward(kept.gate_up, scratch.gated_gradient, scratch.gated);
  weight_gradient_.Write(gradient, scratch.gated, gradients.down);
  const at::Tensor& gate_up_gradient = kept.gate_up;
  LinearInputGradient(gate_up_gradient, weights.gate_up, scratch.normed_gradient);
  const at::Tensor& normed = NormedAgain(ops_, kept.middle_normed, kept.middle, weights.post_norm,
                                         kept.middle_scale, scratch.normed);
  weight_gradient_.Write(gate_up_gradient, normed, gradients.gate_up);
  ops_.NormBackward(scratch.normed_gradient, kept.middle, weights.post_norm, kept.middle_scale,
                    gradient, gradients.post_norm);
}

void LlamaBlocks::AttentionBackward(const at::Tensor& input, const BlockWeights& weights,
                                    const BlockGradients& gradients, BlockActivations& kept,
                                    at::Tensor& gradient) {
  BlockScratch::Attention& scratch = memory_.scratch().attention;
  weight_gradient_.Write(gradient, kept.attended, gradients.output);
  LinearInputGradient(gradient, weights.output, scratch.attended_gradient);
  ops_.AttentionBackward(kept.qkv, kept.attended, kept.lse, scratch.attended_gradient, shape_,
                         heads_, scratch.qkv_gradient);
  ops_.Rotate(scratch.qkv_gradient, cos_, sin_, shape_, heads_, -1);
  LinearInputGradient(scratch.qkv_gradient, weights.qkv, scratch.normed_gradient);
  const at::Tensor& normed = NormedAgain(ops_, kept.input_normed, input, weights.input_norm,
                                         kept.input_scale, scratch.normed);
  weight_gradient_.Write(scratch.qkv_gradient, normed, gradients.qkv);
  ops_.NormBackward(scratch.normed_gradient, input, weights.input_norm, kept.input_scale, gradient,
                    gradients.input_norm);
}

std::int64_t LlamaBlocks::bytes() const {
  return memory_.bytes() + inputs_.device_bytes() + weight_gradient_.bytes();
}

}  // namespace muster
