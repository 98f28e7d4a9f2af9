#include "trainer/model/families/family.h"

namespace muster {

// Norms follow attention and feed-forward, and query and key are normed over all their heads.
Family Olmo2() {
  return {.model_type = "olmo2",
          .defaults = {.architecture = "Olmo2ForCausalLM",
                       .rms_norm_eps = 1e-5,
                       .qk_norms = QkNorms::kAllHeads,
                       .norm_placement = NormPlacement::kAfter},
          .names = {.attention_norm = "post_attention_layernorm.weight",
                    .feed_forward_norm = "post_feedforward_layernorm.weight"},
          .read = RefuseWindowsOfSomeBlocks};
}

}  // namespace muster
