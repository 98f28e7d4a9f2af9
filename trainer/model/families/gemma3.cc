#include "trainer/model/families/gemma.h"
#include "trainer/model/families/read_rope.h"

namespace muster {
namespace {

// What is neither of the two kinds of layers, nor a rotation of all of them.
void RefuseOtherKinds(ConfigReader& reader, const nlohmann::json& kinds) {
  for (const auto& [kind, rotation] : kinds.items()) {
    const bool known = kind == "full_attention" || kind == "sliding_attention";
    if (known && !rotation.is_object() && !rotation.is_null())
      reader.Fail("rope_parameters", "has " + rotation.dump() + " for " + kind + ", no object");
    if (!known && rotation.is_object())
      reader.Refuse("rope_parameters of " + kind +
                    " are not supported; layers have full_attention "
                    "or sliding_attention");
  }
}

// transformers 5 has an object in rope_parameters for each kind of layer; before, rope_theta and
// rope_scaling were for layers without a window, and rope_local_base_freq was the others' base.
void ReadRotations(ConfigReader& reader, ModelConfig& config) {
  double& windows = config.attention.window_rope_theta.emplace(1e4);
  reader.ReadPositive("rope_local_base_freq", &windows);
  const auto* kinds = reader.Find("rope_parameters");
  if (kinds == nullptr || !kinds->is_object()) return;
  RefuseOtherKinds(reader, *kinds);
  const auto read = [&](const char* kind, ModelConfig& into) {
    const auto found = kinds->find(kind);
    if (found == kinds->end() || !found->is_object()) return;
    const std::string origin = reader.origin() + ": rope_parameters: " + kind;
    reader.Take(ReadRopeObject(*found, origin, reader, FamilyOf(config), &into));
  };
  read("full_attention", config);
  ModelConfig windowed = config;
  windowed.rope_theta = windows;
  windowed.rope_scaling.reset();
  read("sliding_attention", windowed);
  windows = windowed.rope_theta;
  if (windowed.rope_scaling)
    reader.Refuse("a scaling of sliding_attention's rotations is not supported");
}

void ReadGemma3(ConfigReader& reader, ModelConfig& config) {
  std::int64_t interval = 6;
  reader.ReadPositions("sliding_window_pattern", &interval);
  ReadGemma(reader, config, interval);
  ReadRotations(reader, config);
  // transformers reads it and does not apply it.
  if (reader.Find("attn_logit_softcapping") != nullptr)
    reader.Refuse("attn_logit_softcapping of this architecture is not supported; make it null");
  reader.ReadPositive("final_logit_softcapping", &config.logit_cap);
}

}  // namespace

// Norms of heads instead of caps; five layers of six have a window, and rotations of their own.
Family Gemma3() {
  Family family{.model_type = "gemma3_text",
                .defaults = GemmaDefaults("Gemma3ForCausalLM"),
                .names = {.feed_forward_norm = "pre_feedforward_layernorm.weight"},
                .read = ReadGemma3};
  family.defaults.max_position_embeddings = 131072;
  family.defaults.rope_theta = 1e6;
  family.defaults.qk_norms = QkNorms::kPerHead;
  return family;
}

}  // namespace muster
