#include "trainer/model/families/gemma.h"

#include <cmath>

namespace muster {

ModelConfig GemmaDefaults(const char* architecture) {
  return {.architecture = architecture,
          .num_key_value_heads = 4,
          .head_dim = 256,
          .norm_placement = NormPlacement::kBoth,
          .zero_centered_norms = true,
          .activation = Activation::kGeluTanh,
          .rounds_embedding_multiplier = true,
          .tie_word_embeddings = true,
          .max_position_embeddings = 8192,
          .sliding_window = 4096};
}

void ReadGemma(ConfigReader& reader, ModelConfig& config, std::int64_t interval) {
  std::string activation = "gelu_pytorch_tanh";
  reader.ReadString("hidden_activation", &activation);
  if (activation != "gelu_pytorch_tanh")
    reader.Refuse("hidden_activation " + activation +
                  " is not supported; of this architecture this version knows gelu_pytorch_tanh");
  bool both_ways = false;
  reader.ReadBool("use_bidirectional_attention", &both_ways);
  if (both_ways) reader.Refuse("use_bidirectional_attention true is not supported by this version");
  config.embedding_multiplier = std::sqrt(static_cast<double>(config.hidden_size));
  double scalar = 256;
  reader.ReadPositive("query_pre_attn_scalar", &scalar);
  config.attention_multiplier = 1 / std::sqrt(scalar);
  ReadWindows(reader, config, interval);
}

}  // namespace muster
