#include "trainer/model/families/family.h"

namespace muster {

// Query, key and value projections have a bias. Qwen2.5 is the same architecture.
Family Qwen2() {
  return {
      .model_type = "qwen2",
      .defaults = {.architecture = "Qwen2ForCausalLM", .num_key_value_heads = 32, .qkv_bias = true},
      .read = RefuseWindowsOfSomeBlocks};
}

}  // namespace muster
