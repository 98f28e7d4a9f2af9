#include "trainer/model/llama.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "common/base/check.h"
#include "trainer/model/linear_layer.h"
#include "trainer/ops/cpu/decode_attention.h"
#include "trainer/ops/host_threads.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

// The positions that come next: T of them from begins[0] on in every row, or one in each row; and
// how long the texts are that they belong to.
struct NextPositions {
  std::vector<std::int64_t> begins;
  std::int64_t length = 0;  // T
  std::vector<std::int64_t> lengths;

  std::int64_t BeginOf(std::size_t text) const { return begins[begins.size() > 1 ? text : 0]; }
};

// cos and sin [B or 1, T, 1, rotary half] of the positions that come next.
RotaryAngles AnglesOf(RotaryTable& rotary, const NextPositions& next) {
  if (!rotary.depends_on_length() && next.begins.size() > 1) {
    const std::int64_t last = *std::max_element(next.begins.begin(), next.begins.end());
    const RotaryAngles all = rotary.Of(0, 0, last + next.length);
    const auto of_rows = [&](const at::Tensor& table) {
      return table.index_select(0, at::tensor(next.begins)).unsqueeze(1).unsqueeze(1);
    };
    return {.cos = of_rows(all.cos), .sin = of_rows(all.sin)};
  }
  std::vector<at::Tensor> cosines, sines;
  const std::size_t texts = rotary.depends_on_length() ? next.lengths.size() : 1;
  for (std::size_t text = 0; text < texts; ++text) {
    const RotaryAngles own = rotary.Of(next.lengths[text], next.BeginOf(text), next.length);
    cosines.push_back(own.cos);
    sines.push_back(own.sin);
  }
  return {.cos = at::stack(cosines).unsqueeze(2), .sin = at::stack(sines).unsqueeze(2)};
}

// x [B, T, heads, head_dim]: each pair (i, i + rotary half) turned by its position's angle; what is
// behind the pairs stays.
at::Tensor Rotated(const at::Tensor& x, const RotaryAngles& angles) {
  const at::ScalarType wide = WideType(x.scalar_type());
  const at::Tensor cos = angles.cos.to(wide), sin = angles.sin.to(wide);
  const std::int64_t half = cos.size(-1), rest = x.size(3) - 2 * half;
  const at::Tensor a = x.narrow(3, 0, half).to(wide), b = x.narrow(3, half, half).to(wide);
  const at::Tensor turned = at::cat({a * cos - b * sin, b * cos + a * sin}, 3).to(x.scalar_type());
  return rest == 0 ? turned : at::cat({turned, x.narrow(3, 2 * half, rest)}, 3);
}

// Keys [B, kv heads, S, head_dim] of the last S of a text's `length` positions, `seen` of which
// there are so far.
at::Tensor RotatedKeys(const at::Tensor& keys, RotaryTable& rotary, std::int64_t length,
                       std::int64_t seen) {
  const std::int64_t held = keys.size(2);
  const RotaryAngles angles = rotary.Of(length, seen - held, held);
  return Rotated(keys.transpose(1, 2), {.cos = angles.cos.unsqueeze(1).unsqueeze(0),
                                        .sin = angles.sin.unsqueeze(1).unsqueeze(0)})
      .transpose(1, 2)
      .contiguous();
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
                  const ModelConfig& config) {
  const std::optional<std::int64_t> window = config.sliding_window;
  std::optional<double> scale;
  if (config.attention_multiplier > 0) scale = config.attention_multiplier;
  const std::int64_t heads = query.size(1), last = query.size(2), all = key.size(2);
  const at::Tensor keys = ShareHeads(key, heads), values = ShareHeads(value, heads);
  if (last == all && (!window || all <= *window)) {
    return at::scaled_dot_product_attention(query, keys, values, {}, 0.0, /*is_causal=*/true,
                                            scale);
  }
  return at::scaled_dot_product_attention(query, keys, values, VisibleTo(last, all, window), 0.0,
                                          /*is_causal=*/false, scale);
}

// query [B, heads, 1, head_dim] of one position, which sees all that is given; no gradients.
// held[i]: [B / held.size(), kv heads, S, head_dim], of rows in a row -> [B, heads, 1, head_dim].
at::Tensor AttendLast(const at::Tensor& query, const std::vector<BlockCache::Held>& held,
                      double scale) {
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
                                  .scale = scale,
                                  .texts = texts};
  OverRanges(query.size(0) * heads, 1,
             [&](std::int64_t begin, std::int64_t end) { DecodeAttend(attention, begin, end); });
  return mixed;
}

// Where positions of a pass are, and how long their texts.
NextPositions PositionsOf(std::int64_t length, std::span<BlockCache* const> caches,
                          std::span<const std::int64_t> lengths) {
  NextPositions next{.begins = {}, .length = length, .lengths = {}};
  for (const BlockCache* cache : caches) next.begins.push_back(cache->length());
  if (caches.empty()) next.begins.push_back(0);
  next.lengths.assign(lengths.begin(), lengths.end());
  if (lengths.empty()) {
    for (const std::int64_t begin : next.begins) next.lengths.push_back(begin + length);
  }
  return next;
}

at::Tensor Attention(const ModelConfig& config, RotaryTable* rotary, const at::Tensor& x,
                     const BlockWeights& weights, std::span<BlockCache* const> caches,
                     std::span<const std::int64_t> lengths) {
  const std::int64_t rows = x.size(0), length = x.size(1);
  const std::int64_t heads = config.num_attention_heads, kv_heads = config.num_key_value_heads;
  const NextPositions next = PositionsOf(length, caches, lengths);
  RotaryAngles angles;
  if (rotary != nullptr) angles = AnglesOf(*rotary, next);
  const std::vector<at::Tensor> parts = LinearLayer(x, weights.qkv.weight, weights.qkv.bias)
                                            .view({rows, length, -1, config.head_dim})
                                            .split_with_sizes({heads, kv_heads, kv_heads}, 2);
  const auto normed = [&](const at::Tensor& part, const at::Tensor& norm) {
    if (config.qk_norms == QkNorms::kNone) return part;
    if (config.qk_norms == QkNorms::kPerHead) return RmsNorm(part, norm, config.rms_norm_eps);
    return RmsNorm(part.flatten(2), norm, config.rms_norm_eps).view(part.sizes());
  };
  const bool keys_later = rotary != nullptr && rotary->depends_on_length() && !caches.empty();
  const auto prepared = [&](const at::Tensor& part, const at::Tensor& norm, bool rotates) {
    const at::Tensor each = normed(part, norm);
    return (rotates ? Rotated(each, angles) : each).transpose(1, 2);
  };
  const at::Tensor query = prepared(parts[0], weights.query_norm, rotary != nullptr);
  const at::Tensor key = prepared(parts[1], weights.key_norm, rotary != nullptr && !keys_later);
  const at::Tensor value = parts[2].transpose(1, 2);
  std::vector<BlockCache::Held> held;
  const std::int64_t rows_each = caches.empty() ? rows : rows / std::ssize(caches);
  for (std::int64_t i = 0; i < std::ssize(caches); ++i) {
    held.push_back(caches[i]->Append(key.narrow(0, i * rows_each, rows_each),
                                     value.narrow(0, i * rows_each, rows_each)));
    if (!keys_later) continue;
    const std::int64_t seen = next.begins[i] + length;
    held.back() = {.key = RotatedKeys(held.back().key, *rotary, next.lengths[i], seen),
                   .value = held.back().value.contiguous()};
  }
  if (held.empty()) held.push_back({.key = key, .value = value});
  const at::Tensor mixed = !caches.empty() && length == 1
                               ? AttendLast(query, held, config.attention_multiplier)
                               : Attend(query, held[0].key, held[0].value, config);
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

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(WideType(x.scalar_type()));
  const at::Tensor normed = wide * at::rsqrt(wide.square().mean(-1, true) + eps);
  return normed.to(x.scalar_type()) * weight;
}

at::Tensor EmbedTokens(const at::Tensor& embedding, const at::Tensor& ids) {
  return at::embedding(embedding, ids);
}

at::Tensor BlockForward(const ModelConfig& config, RotaryTable* rotary, const at::Tensor& hidden,
                        const BlockWeights& weights, std::span<BlockCache* const> caches,
                        std::span<const std::int64_t> lengths) {
  const bool before = config.norm_placement == NormPlacement::kBefore;
  const auto residual = [&](const at::Tensor& x, const at::Tensor& norm, const auto& f) {
    const auto normed = [&](const at::Tensor& y) { return RmsNorm(y, norm, config.rms_norm_eps); };
    if (!before) return x + normed(f(x));
    const at::Tensor added = f(normed(x));
    return x + (config.residual_multiplier == 1 ? added : added * config.residual_multiplier);
  };
  const at::Tensor attended = residual(hidden, weights.attention_norm, [&](const at::Tensor& x) {
    return Attention(config, rotary, x, weights, caches, lengths);
  });
  return residual(attended, weights.feed_forward_norm, [&](const at::Tensor& x) {
    return weights.router.defined() ? MixtureForward(*config.experts, x, weights)
                                    : FeedForward(x, weights);
  });
}

}  // namespace muster
