#include "trainer/model/families/family.h"

namespace muster {

// Norms follow attention and feed-forward, and query and key are normed over all their heads.
Family Olmo2() {
  return {.model_type = "olmo2",
          .defaults = {.architecture = "Olmo2ForCausalLM",
                       .rms_norm_eps = 1e-5,
                       .qk_norms = QkNorms::kAllHeads,
                       .norm_placement = NormPlacement::kAfter},
          .read = RefuseWindowsOfSomeBlocks};
}

}  // namespace muster
