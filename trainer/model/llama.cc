#include "trainer/model/llama.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "common/base/check.h"
#include "trainer/model/linear_layer.h"
#include "trainer/ops/cpu/decode_attention.h"
#include "trainer/ops/host_threads.h"
#include "trainer/ops/scalar_type.h"
#include "trainer/ops/to_device.h"

namespace muster {
namespace {

// The positions that come next: T of them from begins[0] on in every row, or one in each row.
struct NextPositions {
  std::vector<std::int64_t> begins;
  std::int64_t length = 0;

  // Their rows in a table, [B or 1, T, 1, head_dim / 2].
  at::Tensor Of(const at::Tensor& table) const {
    if (begins.size() == 1) return table.narrow(0, begins[0], length).unsqueeze(1).unsqueeze(0);
    return table.index_select(0, at::tensor(begins)).unsqueeze(1).unsqueeze(1);
  }
  std::int64_t end() const { return *std::max_element(begins.begin(), begins.end()) + length; }
};

// x [B, T, heads, head_dim]: each pair (i, i + head_dim / 2) turned by its position's angle.
at::Tensor Rotated(const at::Tensor& x, const RotaryTable& rotary, const NextPositions& next) {
  const at::ScalarType wide = WideType(x.scalar_type());
  const std::int64_t half = x.size(3) / 2;
  const at::Tensor cos = next.Of(rotary.Cos(next.end())).to(wide);
  const at::Tensor sin = next.Of(rotary.Sin(next.end())).to(wide);
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
// head_dim] -> [B, heads, T, head_dim].
at::Tensor Attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  std::optional<std::int64_t> window) {
  const std::int64_t heads = query.size(1), last = query.size(2), all = key.size(2);
  const at::Tensor keys = ShareHeads(key, heads), values = ShareHeads(value, heads);
  if (last == all && (!window || all <= *window)) {
    return at::scaled_dot_product_attention(query, keys, values, {}, 0.0, /*is_causal=*/true);
  }
  return at::scaled_dot_product_attention(query, keys, values, VisibleTo(last, all, window));
}

// query [B, heads, 1, head_dim] of one position, which sees all that is given; no gradients.
// held[i]: [B / held.size(), kv heads, S, head_dim], of rows in a row -> [B, heads, 1, head_dim].
at::Tensor AttendLast(const at::Tensor& query, const std::vector<BlockCache::Held>& held) {
  const at::Tensor queries = query.contiguous();
  at::Tensor mixed = at::empty_like(queries);
  const std::int64_t heads = query.size(1), head_dim = query.size(3),
                     kv_heads = held[0].key.size(1);
  const auto rows_each = query.size(0) / static_cast<std::int64_t>(held.size());
  const auto row_of = [](const at::Tensor& tensor, std::int64_t row) {
    return static_cast<const std::byte*>(tensor.const_data_ptr()) +
           row * tensor.stride(0) * tensor.element_size();
  };
  std::vector<DecodeText> texts;
  for (std::int64_t row = 0; row < query.size(0); ++row) {
    const auto& [key, value] = held[static_cast<std::size_t>(row / rows_each)];
    texts.push_back({.query = row_of(queries, row),
                     .key = row_of(key, row % rows_each),
                     .value = row_of(value, row % rows_each),
                     .mixed = const_cast<std::byte*>(row_of(mixed, row)),
                     .positions = key.size(2),
                     .head_stride = key.stride(1)});
  }
  MUSTER_CHECK(head_dim <= kMaxDecodeHeadDim, "a head is too wide");
  const DecodeAttention attention{.type = ElementTypeOf(query.scalar_type()),
                                  .heads = heads,
                                  .kv_heads = kv_heads,
                                  .head_dim = head_dim,
                                  .texts = texts};
  OverRanges(query.size(0) * heads, 1,
             [&](std::int64_t begin, std::int64_t end) { DecodeAttend(attention, begin, end); });
  return mixed;
}

at::Tensor Attention(const ModelConfig& config, const RotaryTable* rotary, const at::Tensor& x,
                     const BlockWeights& weights, std::span<BlockCache* const> caches) {
  const std::int64_t rows = x.size(0), length = x.size(1);
  const std::int64_t heads = config.num_attention_heads, kv_heads = config.num_key_value_heads;
  NextPositions next{.begins = {}, .length = length};
  for (const BlockCache* cache : caches) next.begins.push_back(cache->length());
  if (caches.empty()) next.begins.push_back(0);
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
    return (rotary != nullptr ? Rotated(each, *rotary, next) : each).transpose(1, 2);
  };
  const at::Tensor query = prepared(parts[0], weights.query_norm);
  const at::Tensor key = prepared(parts[1], weights.key_norm), value = parts[2].transpose(1, 2);
  std::vector<BlockCache::Held> held;
  const std::int64_t rows_each = caches.empty() ? rows : rows / std::ssize(caches);
  for (std::int64_t i = 0; i < std::ssize(caches); ++i)
    held.push_back(caches[i]->Append(key.narrow(0, i * rows_each, rows_each),
                                     value.narrow(0, i * rows_each, rows_each)));
  if (held.empty()) held.push_back({.key = key, .value = value});
  const at::Tensor mixed = !caches.empty() && length == 1
                               ? AttendLast(query, held)
                               : Attend(query, held[0].key, held[0].value, config.sliding_window);
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

// Each token through its experts, one expert after the other.
at::Tensor MixtureForward(const ExpertsConfig& config, const at::Tensor& x,
                          const BlockWeights& weights) {
  const at::Tensor tokens = x.flatten(0, 1);
  const at::Tensor logits = LinearLayer(tokens, weights.router);
  auto [share, experts] = logits.softmax(-1, WideType(x.scalar_type())).topk(config.per_token, -1);
  if (config.normalizes_weights) share = share / share.sum(-1, /*keepdim=*/true);
  const std::vector<at::Tensor> gate_up = weights.expert_gate_up.weight.chunk(config.count);
  const std::vector<at::Tensor> down = weights.expert_down.weight.chunk(config.count);
  at::Tensor y = at::zeros_like(tokens);
  for (std::int64_t e = 0; e < config.count; ++e) {
    const at::Tensor chosen = experts.eq(e).nonzero();  // [its tokens, 2]
    if (chosen.size(0) == 0) continue;
    const at::Tensor token = chosen.select(1, 0);
    const at::Tensor weight = share.index({token, chosen.select(1, 1)}).unsqueeze(1);
    const at::Tensor inner = SwiGlu(LinearLayer(tokens.index_select(0, token), gate_up[e]));
    const at::Tensor out = LinearLayer(inner, down[e]);
    y = y.index_add(0, token, (out * weight).to(y.scalar_type()));
  }
  return y.view(x.sizes());
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
                        const at::Tensor& hidden, const BlockWeights& weights,
                        std::span<BlockCache* const> caches) {
  const bool before = config.norm_placement == NormPlacement::kBefore;
  const auto residual = [&](const at::Tensor& x, const at::Tensor& norm, const auto& f) {
    const auto normed = [&](const at::Tensor& y) { return RmsNorm(y, norm, config.rms_norm_eps); };
    return before ? x + f(normed(x)) : x + normed(f(x));
  };
  const at::Tensor attended = residual(hidden, weights.attention_norm, [&](const at::Tensor& x) {
    return Attention(config, rotary, x, weights, caches);
  });
  return residual(attended, weights.feed_forward_norm, [&](const at::Tensor& x) {
    return weights.router.defined() ? MixtureForward(*config.experts, x, weights)
                                    : FeedForward(x, weights);
  });
}

}  // namespace muster
