#include <cmath>

#include "trainer/model/families/family.h"

namespace muster {
namespace {

constexpr double kStretch = 32;  // of contexts, where config.json does not say

void ReadGptOss(ConfigReader& reader, ModelConfig& config) {
  reader.ReadBool("attention_bias", &config.qkv_bias);
  config.output_bias = config.qkv_bias;
  ReadWindows(reader, config, /*interval=*/2);
  ClampedSwiGluForm clamped;
  reader.ReadPositive("swiglu_limit", &clamped.limit);
  reader.ReadPositive("swiglu_alpha", &clamped.alpha);
  config.experts = ExpertsConfig{.count = 128,
                                 .per_token = 4,
                                 .intermediate_size = config.intermediate_size,
                                 .normalizes_weights = true,
                                 .balance_coefficient = 0.001,
                                 .biases = true,
                                 .picks_by_logit = true,
                                 .clamped = clamped};
  ReadExperts(reader, *config.experts);
}

}  // namespace

// Sinks of attention, windows in every other layer, and experts with biases and bounds.
Family GptOss() {
  Family family{.model_type = "gpt_oss",
                .defaults = {.architecture = "GptOssForCausalLM",
                             .num_key_value_heads = 8,
                             .head_dim = 64,
                             .rms_norm_eps = 1e-5,
                             .rope_theta = 150000,
                             .max_position_embeddings = 131072,
                             .sliding_window = 128,
                             .torch_dtype = "bfloat16"},
                .names = {.router = "mlp.router.weight", .experts = "mlp.experts."},
                .stacked_experts = true,
                .reads_attention_bias = true,
                .read = ReadGptOss};
  family.defaults.attention.sinks = true;
  family.defaults.rope_scaling = {.kind = RopeKind::kYarn,
                                  .factor = kStretch,
                                  .original_max_position_embeddings = 4096,
                                  .truncate = false,
                                  .attention_factor = 0.1 * std::log(kStretch) + 1};
  return family;
}

}  // namespace muster
