#include "trainer/model/llama.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace muster {
namespace {

// x [B, T, heads, head_dim]; the second half of a head is the imaginary part of the first.
at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

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
  const std::int64_t rows = x.size(0);
  const std::int64_t length = x.size(1);
  const std::int64_t heads = config.num_attention_heads;
  const std::int64_t kv_heads = config.num_key_value_heads;
  const at::Tensor qkv =
      at::linear(x, weights.qkv).view({rows, length, heads + 2 * kv_heads, config.head_dim});
  // Query and key heads are neighbours and rotate together.
  const at::Tensor rotated =
      Rotate(qkv.narrow(2, 0, heads + kv_heads), rotary.Cos(length), rotary.Sin(length));
  const at::Tensor query = rotated.narrow(2, 0, heads);
  const at::Tensor key = ShareHeads(rotated.narrow(2, heads, kv_heads), heads);
  const at::Tensor value = ShareHeads(qkv.narrow(2, heads + kv_heads, kv_heads), heads);
  const at::Tensor mixed = at::scaled_dot_product_attention(
      query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), {}, 0.0, true);
  return at::linear(mixed.transpose(1, 2).reshape({rows, length, heads * config.head_dim}),
                    weights.output);
}

at::Tensor FeedForward(const at::Tensor& x, const BlockWeights& weights) {
  const std::vector<at::Tensor> halves = at::linear(x, weights.gate_up).chunk(2, -1);
  return at::linear(at::silu(halves[0]) * halves[1], weights.down);
}

}  // namespace

RotaryTable::RotaryTable(const ModelConfig& config, at::ScalarType type)
    : head_dim_(config.head_dim), theta_(config.rope_theta), type_(type) {}

void RotaryTable::Ensure(std::int64_t length) {
  if (length <= length_) return;
  length_ = std::max(length, 2 * length_);
  const at::Tensor exponents = at::arange(0, head_dim_, 2, at::kFloat) / head_dim_;
  const at::Tensor frequencies = at::reciprocal(at::pow(theta_, exponents));
  const at::Tensor angles = at::outer(at::arange(length_, at::kFloat), frequencies).unsqueeze(1);
  cos_ = angles.cos().to(type_);
  sin_ = angles.sin().to(type_);
}

at::Tensor RotaryTable::Cos(std::int64_t length) const { return cos_.narrow(0, 0, length); }
at::Tensor RotaryTable::Sin(std::int64_t length) const { return sin_.narrow(0, 0, length); }

at::Tensor EmbedTokens(const at::Tensor& embedding, const at::Tensor& ids) {
  return at::embedding(embedding, ids);
}

at::Tensor RmsNorm(const at::Tensor& hidden, const at::Tensor& weight, double eps) {
  const at::Tensor x = hidden.to(at::kFloat);
  const at::Tensor scale = at::rsqrt(x.square().mean(-1, true) + eps);
  return weight * (x * scale).to(hidden.scalar_type());
}

at::Tensor BlockForward(const ModelConfig& config, const RotaryTable& rotary,
                        const at::Tensor& hidden, const BlockWeights& weights) {
  const at::Tensor attended =
      hidden +
      Attention(config, rotary, RmsNorm(hidden, weights.input_norm, config.rms_norm_eps), weights);
  return attended + FeedForward(RmsNorm(attended, weights.post_norm, config.rms_norm_eps), weights);
}

}  // namespace muster
