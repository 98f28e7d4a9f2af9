#include "trainer/model/llama.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace muster {
namespace {

// [B, T, kv heads, head_dim] -> [B, T, heads, head_dim]: each key head serves a run of query heads.
at::Tensor ShareHeads(const at::Tensor& x, std::int64_t heads) {
  const std::int64_t group = heads / x.size(2);
  if (group == 1) return x;
  return x.unsqueeze(3)
      .expand({x.size(0), x.size(1), x.size(2), group, x.size(3)})
      .reshape({x.size(0), x.size(1), heads, x.size(3)});
}

at::Tensor Attention(const ModelConfig& config, const RotaryTable& rotary, const at::Tensor& x,
                     const BlockWeights& weights) {
  const std::int64_t length = x.size(1);
  const std::int64_t heads = config.num_attention_heads;
  const QueryKeyValue parts = SplitAndRotate(
      at::linear(x, weights.qkv), rotary.Cos(length), rotary.Sin(length),
      {.heads = heads, .kv_heads = config.num_key_value_heads, .head_dim = config.head_dim});
  const at::Tensor mixed = at::scaled_dot_product_attention(
      parts.query.transpose(1, 2), ShareHeads(parts.key, heads).transpose(1, 2),
      ShareHeads(parts.value, heads).transpose(1, 2), {}, 0.0, true);
  return at::linear(mixed.transpose(1, 2).reshape({x.size(0), length, heads * config.head_dim}),
                    weights.output);
}

at::Tensor FeedForward(const at::Tensor& x, const BlockWeights& weights) {
  return at::linear(GatedSilu(at::linear(x, weights.gate_up)), weights.down);
}

}  // namespace

RotaryTable::RotaryTable(const ModelConfig& config)
    : head_dim_(config.head_dim), theta_(config.rope_theta) {}

void RotaryTable::Ensure(std::int64_t length) {
  if (length <= length_) return;
  length_ = std::max(length, 2 * length_);
  const at::Tensor exponents = at::arange(0, head_dim_, 2, at::kFloat) / head_dim_;
  const at::Tensor frequencies = at::reciprocal(at::pow(theta_, exponents));
  const at::Tensor angles = at::outer(at::arange(length_, at::kFloat), frequencies);
  cos_ = angles.cos();
  sin_ = angles.sin();
}

at::Tensor RotaryTable::Cos(std::int64_t length) const { return cos_.narrow(0, 0, length); }
at::Tensor RotaryTable::Sin(std::int64_t length) const { return sin_.narrow(0, 0, length); }

at::Tensor EmbedTokens(const at::Tensor& embedding, const at::Tensor& ids) {
  return at::embedding(embedding, ids);
}

at::Tensor BlockForward(const ModelConfig& config, const RotaryTable& rotary,
                        const at::Tensor& hidden, const BlockWeights& weights) {
  const at::Tensor attended =
      hidden +
      Attention(config, rotary, RmsNorm(hidden, weights.input_norm, config.rms_norm_eps), weights);
  return attended + FeedForward(RmsNorm(attended, weights.post_norm, config.rms_norm_eps), weights);
}

}  // namespace muster
