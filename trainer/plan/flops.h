// Floating-point operations of training, and what share of a device's peak a rate of tokens is.
//
// Two counts are kept apart. Model operations are what the mathematics needs: 6 N per token for the
// weights (2 forward, 4 backward) and 12 L a s for attention, with N all parameters (of experts
// those that a token has), L blocks, a the width of the heads together, s the length of a row;
// neither the causal half nor what is computed again is taken into account. MFU is counted with
// them, as in the published figures it is compared with (PaLM, appendix B; torchtitan; llm.c).
// Executed operations are what a device is kept busy with: attention looks back only, the embedding
// multiplies nothing, checkpointing computes again. Adapters take the frozen weights' gradients (2
// N of 6 N) out of both.
//
// Pure; any thread.
#pragma once

#include <cstdint>

#include "common/job_spec/job_spec.h"
#include "trainer/core/model_config.h"

namespace muster {

struct FlopsOptions {
  std::int64_t length = 0;  // of a row, in tokens
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kSelective;
  std::int64_t adapter_parameters = 0;  // 0: all weights are trained
};

// Per token.
double ModelFlops(const ModelConfig& config, const FlopsOptions& options);
double ExecutedFlops(const ModelConfig& config, const FlopsOptions& options);

// The share of the peak that is put to use, 0 to 1. `tokens_per_second` of all devices together,
// `peak_tflops` of one. 0 where a figure is missing.
double ModelFlopsUtilization(double flops_per_token, double tokens_per_second, int devices,
                             double peak_tflops);

}  // namespace muster
