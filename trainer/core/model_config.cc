#include "trainer/core/model_config.h"

namespace muster {

std::int64_t ModelConfig::ParameterCount() const {
  const std::int64_t q = num_attention_heads * head_dim * hidden_size;
  const std::int64_t kv = num_key_value_heads * head_dim * hidden_size;
  std::int64_t block = 2 * q + 2 * kv + 3 * intermediate_size * hidden_size + 2 * hidden_size;
  if (qkv_bias) block += (num_attention_heads + 2 * num_key_value_heads) * head_dim;
  if (qk_norms == QkNorms::kPerHead) block += 2 * head_dim;
  if (qk_norms == QkNorms::kAllHeads)
    block += (num_attention_heads + num_key_value_heads) * head_dim;
  const std::int64_t embedding = vocab_size * hidden_size;
  return embedding * (tie_word_embeddings ? 1 : 2) + num_hidden_layers * block + hidden_size;
}

}  // namespace muster
