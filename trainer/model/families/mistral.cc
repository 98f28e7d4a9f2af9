#include "trainer/model/families/family.h"

namespace muster {
namespace {

// One window for all blocks; null means none.
void ReadMistral(ConfigReader& reader, ModelConfig& config) {
  if (!reader.IsNull("sliding_window"))
    reader.ReadPositions("sliding_window", &config.sliding_window.emplace(4096));
}

}  // namespace

Family Mistral() {
  return {.model_type = "mistral",
          .defaults = {.architecture = "MistralForCausalLM", .num_key_value_heads = 8},
          .read = ReadMistral};
}

}  // namespace muster
