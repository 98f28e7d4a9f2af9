#include "trainer/model/llama.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "common/base/check.h"
#include "trainer/model/attention_heads.h"
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

// The share of each score [B, heads, T, S] in the sum of exponentials, where a head's sink [heads]
// has one as well.
at::Tensor SharesOf(const at::Tensor& scores, const at::Tensor& sinks) {
  if (!sinks.defined()) return scores.softmax(-1);
  const at::Tensor sink = sinks.to(scores.scalar_type()).view({1, -1, 1, 1});
  const std::vector<std::int64_t> shape = {scores.size(0), scores.size(1), scores.size(2), 1};
  return at::cat({scores, sink.expand(shape)}, -1).softmax(-1).narrow(-1, 0, scores.size(3));
}

// Attend with a cap on the scores or with sinks, of some positions at a time: only their scores
// take memory.
at::Tensor AttendPlainly(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values,
                         const AttentionHeads& heads, const at::Tensor& sinks) {
  constexpr std::int64_t kPiece = 512;
  const at::ScalarType wide = WideType(query.scalar_type());
  const std::int64_t last = query.size(2), before = keys.size(2) - last;
  const std::optional<std::int64_t> window =
      heads.window > 0 ? std::optional(heads.window) : std::nullopt;
  std::vector<at::Tensor> pieces;
  for (std::int64_t begin = 0; begin < last; begin += kPiece) {
    const std::int64_t count = std::min(kPiece, last - begin), seen = before + begin + count;
    const at::Tensor some = query.narrow(2, begin, count).to(wide);
    const at::Tensor scores =
        at::matmul(some, keys.narrow(2, 0, seen).to(wide).transpose(2, 3)) * heads.score_scale();
    const at::Tensor capped = CapLogits(scores, heads.cap);
    const at::Tensor unseen = VisibleTo(count, seen, window).logical_not();
    const at::Tensor weights =
        SharesOf(capped.masked_fill(unseen, -std::numeric_limits<double>::infinity()), sinks);
    pieces.push_back(at::matmul(weights, values.narrow(2, 0, seen).to(wide)));
  }
  return at::cat(pieces, 2).to(query.scalar_type());
}

// query [B, heads, T, head_dim] of the last T of S positions, key and value [B, kv heads, S,
// head_dim] -> [B, heads, T, head_dim].
at::Tensor Attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const AttentionHeads& heads, const at::Tensor& sinks) {
  const std::int64_t last = query.size(2), all = key.size(2);
  const at::Tensor keys = ShareHeads(key, heads.heads), values = ShareHeads(value, heads.heads);
  if (heads.cap != 0 || sinks.defined()) return AttendPlainly(query, keys, values, heads, sinks);
  const bool windowed = heads.window > 0 && all > heads.window;
  if (last == all && !windowed) {
    return at::scaled_dot_product_attention(query, keys, values, {}, 0.0, /*is_causal=*/true,
                                            heads.score_scale());
  }
  const at::Tensor seen =
      VisibleTo(last, all, windowed ? std::optional(heads.window) : std::nullopt);
  return at::scaled_dot_product_attention(query, keys, values, seen, 0.0, /*is_causal=*/false,
                                          heads.score_scale());
}

// query [B, heads, 1, head_dim] of one position, which sees all that is given; no gradients.
// held[i]: [B / held.size(), kv heads, S, head_dim], of rows in a row -> [B, heads, 1, head_dim].
at::Tensor AttendLast(const at::Tensor& query, const std::vector<BlockCache::Held>& held,
                      const AttentionHeads& form, const at::Tensor& sinks) {
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
                                  .scale = form.scale,
                                  .cap = form.cap,
                                  .sinks = sinks.defined() ? sinks.const_data_ptr() : nullptr,
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

at::Tensor Attention(const ModelConfig& config, std::int64_t layer, RotaryTable* rotary,
                     const at::Tensor& x, const BlockWeights& weights,
                     std::span<BlockCache* const> caches, std::span<const std::int64_t> lengths) {
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
    const bool per_head = config.qk_norms == QkNorms::kPerHead;
    return RmsNorm(per_head ? part : part.flatten(2), norm, config.rms_norm_eps,
                   config.zero_centered_norms)
        .view(part.sizes());
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
  const AttentionHeads form = HeadsOf(config, layer);
  const at::Tensor mixed = !caches.empty() && length == 1
                               ? AttendLast(query, held, form, weights.sinks)
                               : Attend(query, held[0].key, held[0].value, form, weights.sinks);
  return LinearLayer(mixed.transpose(1, 2).reshape({rows, length, heads * config.head_dim}),
                     weights.output.weight, weights.output.bias);
}

at::Tensor SwiGlu(const at::Tensor& gate_up) {
  const std::int64_t inner = gate_up.size(-1) / 2;
  const at::ScalarType wide = WideType(gate_up.scalar_type());
  const at::Tensor gate = gate_up.narrow(-1, 0, inner).to(wide);
  const at::Tensor up = gate_up.narrow(-1, inner, inner).to(wide);
  return (at::silu(gate) * up).to(gate_up.scalar_type());
}

at::Tensor GeGlu(const at::Tensor& gate_up) {
  const at::ScalarType wide = WideType(gate_up.scalar_type());
  const std::vector<at::Tensor> halves = gate_up.to(wide).chunk(2, -1);
  return (at::gelu(halves[0], "tanh") * halves[1]).to(gate_up.scalar_type());
}

at::Tensor FeedForward(const ModelConfig& config, const at::Tensor& x,
                       const BlockWeights& weights) {
  const at::Tensor gate_up = LinearLayer(x, weights.gate_up.weight);
  const bool gelu = config.activation == Activation::kGeluTanh;
  return LinearLayer(gelu ? GeGlu(gate_up) : SwiGlu(gate_up), weights.down.weight);
}

at::Tensor ClampedSwiGlu(const at::Tensor& gate_up, const ClampedSwiGluForm& form) {
  const at::Tensor pairs =
      gate_up.to(WideType(gate_up.scalar_type())).unflatten(-1, {gate_up.size(-1) / 2, 2});
  const at::Tensor gate = pairs.select(-1, 0).clamp_max(form.limit);
  const at::Tensor up = pairs.select(-1, 1).clamp(-form.limit, form.limit);
  return ((up + 1) * gate * (gate * form.alpha).sigmoid()).to(gate_up.scalar_type());
}

// Each token's experts [N, K], and their weights.
std::pair<at::Tensor, at::Tensor> Route(const ExpertsConfig& config, const at::Tensor& tokens,
                                        const BlockWeights& weights) {
  const at::Tensor logits = LinearLayer(tokens, weights.router, weights.router_bias);
  const at::Tensor probabilities = logits.softmax(-1, WideType(tokens.scalar_type()));
  const at::Tensor experts =
      std::get<1>((config.picks_by_logit ? logits : probabilities).topk(config.per_token, -1));
  const at::Tensor share = probabilities.gather(-1, experts);
  return {experts, config.normalizes_weights ? share / share.sum(-1, /*keepdim=*/true) : share};
}

// Each token through its experts, one expert after the other.
at::Tensor MixtureForward(const ExpertsConfig& config, const at::Tensor& x,
                          const BlockWeights& weights) {
  const at::Tensor tokens = x.flatten(0, 1);
  const auto [experts, share] = Route(config, tokens, weights);
  const std::vector<at::Tensor> gate_up = weights.expert_gate_up.weight.chunk(config.count);
  const std::vector<at::Tensor> down = weights.expert_down.weight.chunk(config.count);
  const auto bias_of = [&](const at::Tensor& biases, std::int64_t expert) {
    return biases.defined() ? biases.view({config.count, -1})[expert] : at::Tensor();
  };
  at::Tensor y = at::zeros_like(tokens);
  for (std::int64_t e = 0; e < config.count; ++e) {
    const at::Tensor chosen = experts.eq(e).nonzero();  // [its tokens, 2]
    if (chosen.size(0) == 0) continue;
    const at::Tensor token = chosen.select(1, 0);
    const at::Tensor weight = share.index({token, chosen.select(1, 1)}).unsqueeze(1);
    const at::Tensor entered = LinearLayer(tokens.index_select(0, token), gate_up[e],
                                           bias_of(weights.expert_gate_up.bias, e));
    const at::Tensor inner =
        config.clamped ? ClampedSwiGlu(entered, *config.clamped) : SwiGlu(entered);
    const at::Tensor out = LinearLayer(inner, down[e], bias_of(weights.expert_down.bias, e));
    y = y.index_add(0, token, (out * weight).to(y.scalar_type()));
  }
  if (config.shared_intermediate_size > 0) {
    const at::Tensor inner = SwiGlu(LinearLayer(tokens, weights.gate_up.weight));
    const at::Tensor gate = LinearLayer(tokens, weights.shared_expert_gate.weight);
    y = y + gate.sigmoid() * LinearLayer(inner, weights.down.weight);
  }
  return y.view(x.sizes());
}

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps, bool zero_centered) {
  const at::ScalarType type = WideType(x.scalar_type());
  const at::Tensor wide = x.to(type);
  const at::Tensor normed = wide * at::rsqrt(wide.square().mean(-1, true) + eps);
  if (zero_centered) return (normed * (1 + weight.to(type))).to(x.scalar_type());
  return normed.to(x.scalar_type()) * weight;
}

double EmbeddingMultiplier(const ModelConfig& config, at::ScalarType type) {
  const double multiplier = config.embedding_multiplier;
  if (!config.rounds_embedding_multiplier) return multiplier;
  return at::scalar_tensor(multiplier, at::TensorOptions(type)).item<double>();
}

at::Tensor EmbedTokens(const ModelConfig& config, const at::Tensor& embedding,
                       const at::Tensor& ids) {
  const at::Tensor embedded = at::embedding(embedding, ids);
  const double multiplier = EmbeddingMultiplier(config, embedding.scalar_type());
  return multiplier == 1 ? embedded : embedded * multiplier;
}

at::Tensor CapLogits(const at::Tensor& logits, double cap) {
  return cap != 0 ? (logits / cap).tanh() * cap : logits;
}

at::Tensor BlockForward(const ModelConfig& config, std::int64_t layer, RotaryTable* rotary,
                        const at::Tensor& hidden, const BlockWeights& weights,
                        std::span<BlockCache* const> caches,
                        std::span<const std::int64_t> lengths) {
  const auto normed = [&](const at::Tensor& x, const at::Tensor& norm) {
    return RmsNorm(x, norm, config.rms_norm_eps, config.zero_centered_norms);
  };
  const auto before = [&](const at::Tensor& x, const at::Tensor& norm) {
    return config.norm_placement == NormPlacement::kAfter ? x : normed(x, norm);
  };
  // What is added to the stream.
  const auto after = [&](const at::Tensor& x, const at::Tensor& norm) {
    if (config.norm_placement != NormPlacement::kBefore) return normed(x, norm);
    return config.residual_multiplier == 1 ? x : x * config.residual_multiplier;
  };
  const at::Tensor attention = Attention(
      config, layer, rotary, before(hidden, weights.attention_norm), weights, caches, lengths);
  const at::Tensor middle = hidden + after(attention, weights.attention_output_norm);
  const at::Tensor entered = before(middle, weights.feed_forward_norm);
  const at::Tensor fed = weights.router.defined()
                             ? MixtureForward(*config.experts, entered, weights)
                             : FeedForward(config, entered, weights);
  return middle + after(fed, weights.feed_forward_output_norm);
}

}  // namespace muster
