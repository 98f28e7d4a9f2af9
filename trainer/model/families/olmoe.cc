#include "trainer/model/families/family.h"

namespace muster {
namespace {

void ReadOlmoe(ConfigReader& reader, ModelConfig& config) {
  if (reader.Find("clip_qkv") != nullptr)
    reader.Refuse("clip_qkv is not supported by this version");
  config.experts = ExpertsConfig{.count = 64,
                                 .per_token = 8,
                                 .intermediate_size = config.intermediate_size,
                                 .balance_coefficient = 0.01};
  ReadExperts(reader, *config.experts);
  reader.ReadBool("norm_topk_prob", &config.experts->normalizes_weights);
}

}  // namespace

// Every layer has experts, and query and key are normed over all their heads.
Family Olmoe() {
  return {.model_type = "olmoe",
          .defaults = {.architecture = "OlmoeForCausalLM",
                       .rms_norm_eps = 1e-5,
                       .qk_norms = QkNorms::kAllHeads},
          .peft_renames_experts = true,
          .read = ReadOlmoe};
}

}  // namespace muster
