#include "trainer/model/families/gemma.h"

namespace muster {
namespace {

// Null is no cap, and an absent key that of the released models.
void ReadCap(ConfigReader& reader, const char* key, double default_cap, double* cap) {
  *cap = reader.IsNull(key) ? 0 : default_cap;
  reader.ReadPositive(key, cap);
}

void ReadGemma2(ConfigReader& reader, ModelConfig& config) {
  ReadGemma(reader, config, 2);
  ReadCap(reader, "attn_logit_softcapping", 50, &config.attention.cap);
  ReadCap(reader, "final_logit_softcapping", 30, &config.logit_cap);
}

}  // namespace

// Caps on the scores of attention and on the logits; every second layer has a window.
Family Gemma2() {
  return {.model_type = "gemma2",
          .defaults = GemmaDefaults("Gemma2ForCausalLM"),
          .names = {.feed_forward_norm = "pre_feedforward_layernorm.weight"},
          .read = ReadGemma2};
}

}  // namespace muster
