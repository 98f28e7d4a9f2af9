#include "trainer/model/families/family.h"

namespace muster {

Family Llama() {
  return {.model_type = "llama",
          .defaults = {.architecture = "LlamaForCausalLM"},
          .read = RefuseWindowsOfSomeBlocks};
}

}  // namespace muster
