// The heads of a layer's attention, as the operators take them.
//
// Pure; any thread.
#pragma once

#include <cstdint>

#include "trainer/core/model_config.h"
#include "trainer/ops/batch_shape.h"

namespace muster {

inline AttentionHeads HeadsOf(const ModelConfig& config, std::int64_t layer) {
  return {.heads = config.num_attention_heads,
          .kv_heads = config.num_key_value_heads,
          .head_dim = config.head_dim,
          .window = config.WindowOf(layer).value_or(0),
          .scale = config.attention_multiplier,
          .cap = config.attention.cap};
}

}  // namespace muster
