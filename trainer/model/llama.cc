#include "trainer/model/llama.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "trainer/model/linear_layer.h"
#include "trainer/ops/scalar_type.h"
#include "trainer/ops/to_device.h"

namespace muster {
namespace {

// x [B, T, heads, head_dim] from position `begin` on: each pair (i, i + head_dim / 2) turned by its
// position's angle.
at::Tensor Rotated(const at::Tensor& x, const RotaryTable& rotary, std::int64_t begin) {
  const at::ScalarType wide = WideType(x.scalar_type());
  const std::int64_t length = x.size(1), half = x.size(3) / 2;
  const at::Tensor cos = rotary.Cos(begin + length).narrow(0, begin, length).to(wide).unsqueeze(1);
  const at::Tensor sin = rotary.Sin(begin + length).narrow(0, begin, length).to(wide).unsqueeze(1);
  const at::Tensor a = x.narrow(3, 0, half).to(wide), b = x.narrow(3, half, half).to(wide);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, 3).to(x.scalar_type());
}

// [B, kv heads, S, head_dim] -> [B, heads, S, head_dim]: each key head serves a run of query heads.
at::Tensor ShareHeads(const at::Tensor& x, std::int64_t heads) {
  const std::int64_t group = heads / x.size(1);
  if (group == 1) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), group, x.size(2), x.size(3)})
      .reshape({x.size(0), heads, x.size(2), x.size(3)});
}

// [T, S]: which of S positions the last T of them look at.
at::Tensor VisibleTo(std::int64_t last, std::int64_t all, std::optional<std::int64_t> window) {
  const at::Tensor query = at::arange(all - last, all).unsqueeze(1);
  const at::Tensor key = at::arange(all).unsqueeze(0);
  const at::Tensor earlier = key <= query;
  return window ? earlier.logical_and(key > query - *window) : earlier;
}

// query [B, heads, T, head_dim] of the last T of S positions, key and value [B, kv heads, S,
// head_dim] -> [B, heads, T, head_dim]. One position sees all that is given.
at::Tensor Attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  std::optional<std::int64_t> window) {
  const std::int64_t heads = query.size(1), last = query.size(2), all = key.size(2);
  if (last == 1) {
    // The query heads of a key head take the place of positions: no key is copied.
    const at::Tensor grouped = query.reshape({query.size(0), key.size(1), -1, query.size(3)});
    return at::scaled_dot_product_attention(grouped, key, value).reshape(query.sizes());
  }
  const at::Tensor keys = ShareHeads(key, heads), values = ShareHeads(value, heads);
  if (last == all && (!window || all <= *window)) {
    return at::scaled_dot_product_attention(query, keys, values, {}, 0.0, /*is_causal=*/true);
  }
  return at::scaled_dot_product_attention(query, keys, values, VisibleTo(last, all, window));
}

at::Tensor Attention(const ModelConfig& config, const RotaryTable* rotary, const at::Tensor& x,
                     const BlockWeights& weights, BlockCache* cache) {
  const std::int64_t rows = x.size(0), length = x.size(1);
  const std::int64_t heads = config.num_attention_heads, kv_heads = config.num_key_value_heads;
  const std::int64_t begin = cache == nullptr ? 0 : cache->length();
  const std::vector<at::Tensor> parts = LinearLayer(x, weights.qkv.weight, weights.qkv.bias)
                                            .view({rows, length, -1, config.head_dim})
                                            .split_with_sizes({heads, kv_heads, kv_heads}, 2);
  const auto normed = [&](const at::Tensor& part, const at::Tensor& norm) {
    if (config.qk_norms == QkNorms::kNone) return part;
    if (config.qk_norms == QkNorms::kPerHead) return RmsNorm(part, norm, config.rms_norm_eps);
    return RmsNorm(part.flatten(2), norm, config.rms_norm_eps).view(part.sizes());
  };
  const auto prepared = [&](const at::Tensor& part, const at::Tensor& norm) {
    const at::Tensor each = normed(part, norm);
    return (rotary != nullptr ? Rotated(each, *rotary, begin) : each).transpose(1, 2);
  };
  const at::Tensor query = prepared(parts[0], weights.query_norm);
  BlockCache::Held seen{.key = prepared(parts[1], weights.key_norm),
                        .value = parts[2].transpose(1, 2)};
  if (cache != nullptr) seen = cache->Append(seen.key, seen.value);
  const at::Tensor mixed = Attend(query, seen.key, seen.value, config.sliding_window);
  return LinearLayer(mixed.transpose(1, 2).reshape({rows, length, heads * config.head_dim}),
                     weights.output.weight);
}

at::Tensor SwiGlu(const at::Tensor& gate_up) {
  const std::int64_t inner = gate_up.size(-1) / 2;
  const at::ScalarType wide = WideType(gate_up.scalar_type());
  const at::Tensor gate = gate_up.narrow(-1, 0, inner).to(wide);
  const at::Tensor up = gate_up.narrow(-1, inner, inner).to(wide);
  return (at::silu(gate) * up).to(gate_up.scalar_type());
}

at::Tensor FeedForward(const at::Tensor& x, const BlockWeights& weights) {
  return LinearLayer(SwiGlu(LinearLayer(x, weights.gate_up.weight)), weights.down.weight);
}

// In fp32 and in the order of transformers, so that the angles are its angles.
at::Tensor Scaled(const at::Tensor& frequencies, const RopeScaling& scaling) {
  const auto original = static_cast<double>(scaling.original_max_position_embeddings);
  const double longest = original / scaling.low_freq_factor;
  const double shortest = original / scaling.high_freq_factor;
  const at::Tensor lengths = 2 * M_PI / frequencies;
  const at::Tensor slowed = at::where(lengths > longest, frequencies / scaling.factor, frequencies);
  const at::Tensor share = (original / lengths - scaling.low_freq_factor) /
                           (scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor blended = (1 - share) * slowed / scaling.factor + share * slowed;
  const at::Tensor between = (lengths >= shortest).logical_and(lengths <= longest);
  return at::where(between, blended, slowed);
}

}  // namespace

RotaryTable::RotaryTable(const ModelConfig& config, const RotaryTypes& types)
    : head_dim_(config.head_dim),
      theta_(config.rope_theta),
      scaling_(config.rope_scaling),
      types_(types) {}

void RotaryTable::Ensure(std::int64_t length) {
  if (length <= length_) return;
  length_ = std::max(length, 2 * length_);
  const at::Tensor exponents = at::arange(0, head_dim_, 2, at::kFloat) / head_dim_;
  at::Tensor frequencies = at::reciprocal(at::pow(theta_, exponents));
  if (scaling_) frequencies = Scaled(frequencies, *scaling_);
  const at::Tensor angles = at::outer(at::arange(length_, at::kFloat), frequencies);
  const auto stored = [&](const at::Tensor& values) {
    return ToDevice(values.to(types_.buffer).to(types_.stored), types_.device);
  };
  cos_ = stored(angles.cos());
  sin_ = stored(angles.sin());
}

at::Tensor RotaryTable::Cos(std::int64_t length) const { return cos_.narrow(0, 0, length); }
at::Tensor RotaryTable::Sin(std::int64_t length) const { return sin_.narrow(0, 0, length); }

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(WideType(x.scalar_type()));
  const at::Tensor normed = wide * at::rsqrt(wide.square().mean(-1, true) + eps);
  return normed.to(x.scalar_type()) * weight;
}

at::Tensor EmbedTokens(const at::Tensor& embedding, const at::Tensor& ids) {
  return at::embedding(embedding, ids);
}

at::Tensor BlockForward(const ModelConfig& config, const RotaryTable* rotary,
                        const at::Tensor& hidden, const BlockWeights& weights, BlockCache* cache) {
  const bool before = config.norm_placement == NormPlacement::kBefore;
  const auto residual = [&](const at::Tensor& x, const at::Tensor& norm, const auto& f) {
    const auto normed = [&](const at::Tensor& y) { return RmsNorm(y, norm, config.rms_norm_eps); };
    return before ? x + f(normed(x)) : x + normed(f(x));
  };
  const at::Tensor attended = residual(hidden, weights.attention_norm, [&](const at::Tensor& x) {
    return Attention(config, rotary, x, weights, cache);
  });
  return residual(attended, weights.feed_forward_norm,
                  [&](const at::Tensor& x) { return FeedForward(x, weights); });
}

}  // namespace muster
