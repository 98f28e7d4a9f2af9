#include "trainer/model/families/family.h"

namespace muster {
namespace {

void ReadGranite(ConfigReader& reader, ModelConfig& config) {
  RefuseWindowsOfSomeBlocks(reader, config);
  reader.ReadPositive("embedding_multiplier", &config.embedding_multiplier);
  reader.ReadPositive("attention_multiplier", &config.attention_multiplier);
  reader.ReadPositive("residual_multiplier", &config.residual_multiplier);
  reader.ReadPositive("logits_scaling", &config.logits_scaling);
}

}  // namespace

// A Llama with multipliers; scores are scaled by theirs alone, which is 1 where the file has none.
Family Granite() {
  return {.model_type = "granite",
          .defaults = {.architecture = "GraniteForCausalLM", .attention_multiplier = 1},
          .read = ReadGranite};
}

}  // namespace muster
