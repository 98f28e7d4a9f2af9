#include "trainer/model/families/family.h"

namespace muster {
namespace {

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
