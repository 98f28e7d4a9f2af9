#include "trainer/model/families/family.h"

namespace muster {
namespace {

void ReadQwen2Moe(ConfigReader& reader, ModelConfig& config) {
  RefuseWindowsOfSomeBlocks(reader, config);
  reader.ReadBool("qkv_bias", &config.qkv_bias);
  ReadQwenExperts(reader, config,
                  {.count = 60,
                   .per_token = 4,
                   .intermediate_size = 1408,
                   .shared_intermediate_size = 5632,
                   .balance_coefficient = 0.001});
}

}  // namespace

// Qwen2 with experts, one of which every token has. Qwen1.5-MoE is the same architecture.
Family Qwen2Moe() {
  return {.model_type = "qwen2_moe",
          .defaults = {.architecture = "Qwen2MoeForCausalLM",
                       .num_key_value_heads = 16,
                       .qkv_bias = true},
          .read = ReadQwen2Moe};
}

}  // namespace muster
