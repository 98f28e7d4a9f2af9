#include "trainer/model/families/family.h"

namespace muster {
namespace {

// A layer is dense where mlp_only_layers names it, and where its number is no multiple of
// decoder_sparse_step.
void ReadSparseLayers(ConfigReader& reader, ModelConfig& config) {
  std::int64_t step = 1;
  reader.ReadPositions("decoder_sparse_step", &step);
  std::vector<bool>& sparse = config.experts->sparse_layers;
  for (std::int64_t layer = 1; layer <= config.num_hidden_layers; ++layer)
    sparse.push_back(layer % step == 0);
  const auto* dense = reader.Find("mlp_only_layers");
  if (dense == nullptr) return;
  if (!dense->is_array()) return reader.Fail("mlp_only_layers", "is no list of layers");
  for (const auto& layer : *dense) {
    if (!layer.is_number_integer())
      return reader.Fail("mlp_only_layers", "holds " + layer.dump() + ", not a layer");
    // transformers takes numbers of layers that the model lacks as well.
    const auto number = layer.get<std::int64_t>();
    if (number >= 0 && number < std::ssize(sparse))
      sparse[static_cast<std::size_t>(number)] = false;
  }
}

void ReadQwen3Moe(ConfigReader& reader, ModelConfig& config) {
  RefuseWindowsOfSomeBlocks(reader, config);
  for (const char* key : {"num_experts", "num_local_experts"}) {
    const auto* count = reader.Find(key);
    if (count != nullptr && *count == 0) return;  // every layer is dense
  }
  config.experts = ExpertsConfig{
      .count = 128, .per_token = 8, .intermediate_size = 768, .balance_coefficient = 0.001};
  ReadExperts(reader, *config.experts);
  reader.ReadPositions("moe_intermediate_size", &config.experts->intermediate_size);
  reader.ReadBool("norm_topk_prob", &config.experts->normalizes_weights);
  ReadSparseLayers(reader, config);
}

}  // namespace

// Qwen3 with experts.
Family Qwen3Moe() {
  return {.model_type = "qwen3_moe",
          .defaults = {.architecture = "Qwen3MoeForCausalLM",
                       .num_key_value_heads = 4,
                       .qk_norms = QkNorms::kPerHead},
          .read = ReadQwen3Moe};
}

}  // namespace muster
