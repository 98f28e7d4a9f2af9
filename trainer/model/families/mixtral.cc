#include "trainer/model/families/family.h"

namespace muster {
namespace {

void ReadMixtral(ConfigReader& reader, ModelConfig& config) {
  if (reader.Find("sliding_window") != nullptr)
    reader.ReadPositions("sliding_window", &config.sliding_window.emplace());
  if (const auto* noise = reader.Find("router_jitter_noise"); noise != nullptr && *noise != 0)
    reader.Refuse("router_jitter_noise other than 0 is not supported by this version");
  config.experts = ExpertsConfig{.count = 8,
                                 .per_token = 2,
                                 .intermediate_size = config.intermediate_size,
                                 .normalizes_weights = true,
                                 .balance_coefficient = 0.001};
  ReadExperts(reader, *config.experts);
}

}  // namespace

// A Mistral whose every layer has experts.
Family Mixtral() {
  return {.model_type = "mixtral",
          .defaults = {.architecture = "MixtralForCausalLM",
                       .num_key_value_heads = 8,
                       .rms_norm_eps = 1e-5,
                       .rope_theta = 1e6},
          .names = {.router = "block_sparse_moe.gate.weight",
                    .experts = "block_sparse_moe.experts.",
                    .expert_gate = ".w1.weight",
                    .expert_up = ".w3.weight",
                    .expert_down = ".w2.weight"},
          .peft_renames_experts = true,
          .read = ReadMixtral};
}

}  // namespace muster
