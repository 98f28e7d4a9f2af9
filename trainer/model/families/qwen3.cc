#include "trainer/model/families/family.h"

namespace muster {

// Each head of query and key is normed before its rotation.
Family Qwen3() {
  return {.model_type = "qwen3",
          .defaults = {.architecture = "Qwen3ForCausalLM",
                       .num_key_value_heads = 32,
                       .head_dim = 128,
                       .qk_norms = QkNorms::kPerHead},
          .read = RefuseWindowsOfSomeBlocks};
}

}  // namespace muster
