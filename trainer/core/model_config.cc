#include "trainer/core/model_config.h"

#include <algorithm>

namespace muster {
namespace {

// Elements of the weights, as if sparse layers had `experts` experts each.
std::int64_t CountWith(const ModelConfig& c, std::int64_t experts) {
  const std::int64_t q = c.num_attention_heads * c.head_dim;
  const std::int64_t kv = c.num_key_value_heads * c.head_dim;
  const std::int64_t norms = c.norm_placement == NormPlacement::kBoth ? 4 : 2;
  std::int64_t block = 2 * (q + kv) * c.hidden_size + norms * c.hidden_size;
  if (c.qkv_bias) block += q + 2 * kv;
  if (c.output_bias) block += c.hidden_size;
  if (c.attention.sinks) block += c.num_attention_heads;
  if (c.qk_norms == QkNorms::kPerHead) block += 2 * c.head_dim;
  if (c.qk_norms == QkNorms::kAllHeads) block += q + kv;
  const std::int64_t sparse = c.SparseLayers(), dense = c.num_hidden_layers - sparse;
  std::int64_t feed_forward = 3 * dense * c.intermediate_size * c.hidden_size;
  if (sparse > 0) {
    const std::int64_t inner = c.experts->intermediate_size;
    const std::int64_t biases = c.experts->biases ? 2 * inner + c.hidden_size : 0;
    const std::int64_t router = c.hidden_size + (c.experts->biases ? 1 : 0);
    const std::int64_t shared = c.experts->shared_intermediate_size;
    feed_forward +=
        sparse * (c.experts->count * router + experts * (3 * inner * c.hidden_size + biases));
    if (shared > 0) feed_forward += sparse * (3 * shared + 1) * c.hidden_size;
  }
  const std::int64_t embedding = c.vocab_size * c.hidden_size;
  return embedding * (c.tie_word_embeddings ? 1 : 2) + c.num_hidden_layers * block + feed_forward +
         c.hidden_size;
}

}  // namespace

std::int64_t ModelConfig::SparseLayers() const {
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < num_hidden_layers; ++layer) count += IsSparse(layer) ? 1 : 0;
  return count;
}

std::int64_t ModelConfig::ContextLength() const {
  // Gemma 3 counts the positions after its scaling.
  if (!rope_scaling || attention.window_rope_theta) return max_position_embeddings;
  const auto stretched = [this](std::int64_t length) {
    return static_cast<std::int64_t>(static_cast<double>(length) * rope_scaling->factor);
  };
  switch (rope_scaling->kind) {
    case RopeKind::kLinear:
    case RopeKind::kDynamic: return stretched(max_position_embeddings);
    case RopeKind::kYarn:
      return std::max(max_position_embeddings,
                      stretched(rope_scaling->original_max_position_embeddings));
    case RopeKind::kLlama3:
    case RopeKind::kLongRope: break;
  }
  return max_position_embeddings;
}

std::int64_t ModelConfig::ParameterCount() const {
  return CountWith(*this, experts ? experts->count : 0);
}

std::int64_t ModelConfig::ActiveParameterCount() const {
  return CountWith(*this, experts ? experts->per_token : 0);
}

}  // namespace muster
