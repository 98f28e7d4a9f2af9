#include "trainer/plan/flops.h"

namespace muster {
namespace {

// Scores and their product with the values, over a whole row.
double AttentionForward(const ModelConfig& config, double length) {
  const auto width = static_cast<double>(config.num_attention_heads * config.head_dim);
  return 4.0 * static_cast<double>(config.num_hidden_layers) * width * length;
}

bool ComputesBlocksAgain(ActivationCheckpointing level) {
  return level == ActivationCheckpointing::kFull || level == ActivationCheckpointing::kFullOffload;
}

}  // namespace

double ModelFlops(const ModelConfig& config, const FlopsOptions& options) {
  const auto parameters = static_cast<double>(config.ActiveParameterCount());
  const double attention = 3 * AttentionForward(config, static_cast<double>(options.length));
  if (options.adapter_parameters == 0) return 6 * parameters + attention;
  return 4 * parameters + 6 * static_cast<double>(options.adapter_parameters) + attention;
}

double ExecutedFlops(const ModelConfig& config, const FlopsOptions& options) {
  const auto embedding = static_cast<double>(config.vocab_size * config.hidden_size);
  const double all = static_cast<double>(config.ActiveParameterCount());
  const double blocks = all - embedding * (config.tie_word_embeddings ? 1 : 2);
  const auto adapters = static_cast<double>(options.adapter_parameters);
  const double attention = AttentionForward(config, static_cast<double>(options.length)) / 2;
  const double per_weight = adapters == 0 ? 6 : 4;
  double flops = per_weight * (blocks + embedding) + 6 * adapters + 3 * attention;
  // All of a block's forward pass but its last product, a seventh to a fourth of it, unless a norm
  // follows that.
  const std::int64_t sparse = config.SparseLayers();
  std::int64_t inner = (config.num_hidden_layers - sparse) * config.intermediate_size;
  if (sparse > 0) {
    const ExpertsConfig& experts = *config.experts;
    inner +=
        sparse * (experts.per_token * experts.intermediate_size + experts.shared_intermediate_size);
  }
  const std::int64_t down =
      config.norm_placement != NormPlacement::kBefore ? 0 : inner * config.hidden_size;
  if (ComputesBlocksAgain(options.checkpointing))
    flops += 2 * (blocks - static_cast<double>(down)) + attention;
  return flops;
}

double ModelFlopsUtilization(double flops_per_token, double tokens_per_second, int devices,
                             double peak_tflops) {
  if (devices < 1 || peak_tflops <= 0) return 0;
  return flops_per_token * tokens_per_second / devices / (peak_tflops * 1e12);
}

}  // namespace muster
