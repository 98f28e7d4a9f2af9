#include "trainer/model/families/family.h"

namespace muster {
namespace {

void ReadQwen3Moe(ConfigReader& reader, ModelConfig& config) {
  RefuseWindowsOfSomeBlocks(reader, config);
  ReadQwenExperts(
      reader, config,
      {.count = 128, .per_token = 8, .intermediate_size = 768, .balance_coefficient = 0.001});
}

}  // namespace

// Qwen3 with experts.
Family Qwen3Moe() {
  return {.model_type = "qwen3_moe",
          .defaults = {.architecture = "Qwen3MoeForCausalLM",
                       .num_key_value_heads = 4,
                       .qk_norms = QkNorms::kPerHead},
          .peft_renames_experts = true,
          .read = ReadQwen3Moe};
}

}  // namespace muster
