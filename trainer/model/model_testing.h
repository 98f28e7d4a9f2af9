// Shapes, weights and comparisons that the tests of blocks and head share.
#pragma once

#include <ATen/ATen.h>

#include "trainer/core/model_config.h"
#include "trainer/device/scalar_type.h"
#include "trainer/model/llama.h"

namespace muster {

// Sizes that no vector width divides, and two query heads to a key head.
inline ModelConfig OddConfig(int blocks) {
  ModelConfig config;
  config.hidden_size = 37;
  config.intermediate_size = 43;
  config.num_hidden_layers = blocks;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 10;
  config.vocab_size = 29;
  config.rms_norm_eps = 1e-5;
  return config;
}

inline BlockWeights RandomBlock(const ModelConfig& c, at::ScalarType type) {
  const std::int64_t hidden = c.hidden_size;
  const std::int64_t query = c.num_attention_heads * c.head_dim;
  const std::int64_t key = c.num_key_value_heads * c.head_dim;
  const auto random = [&](at::IntArrayRef shape, double scale) {
    return (at::randn(shape, at::kDouble) * scale).to(type);
  };
  return {.input_norm = random({hidden}, 0.5),
          .qkv = random({query + 2 * key, hidden}, 0.2),
          .output = random({hidden, query}, 0.2),
          .post_norm = random({hidden}, 0.5),
          .gate_up = random({2 * c.intermediate_size, hidden}, 0.2),
          .down = random({hidden, c.intermediate_size}, 0.2)};
}

// |a - b| / |b| in the Euclidean norm.
inline double RelativeDifference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor want = b.to(at::kDouble);
  return ((a.to(at::kDouble) - want).norm() / want.norm()).item<double>();
}

// What rounding to `type` at every step may add up to.
inline double Tolerance(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return 1e-12;
    case at::kFloat: return 1e-5;
    case at::kHalf: return 4e-3;
    default: return 3e-2;
  }
}

}  // namespace muster
