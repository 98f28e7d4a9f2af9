#include "trainer/model/families/family.h"

namespace muster {
namespace {

// Which layers have no positions (NoPE): no_rope_layers has a 1 for each that rotates; without it,
// every no_rope_layer_interval-th does not.
void ReadSmolLm3(ConfigReader& reader, ModelConfig& config) {
  RefuseWindowsOfSomeBlocks(reader, config);
  std::int64_t interval = 4;
  reader.ReadPositions("no_rope_layer_interval", &interval);
  const auto layers = static_cast<std::size_t>(config.num_hidden_layers);
  const auto* listed = reader.Find("no_rope_layers");
  if (listed == nullptr) {
    for (std::int64_t layer = 1; layer <= config.num_hidden_layers; ++layer)
      config.rotating_layers.push_back(layer % interval != 0);
    return;
  }
  if (!listed->is_array() || listed->size() != layers)
    return reader.Fail("no_rope_layers",
                       "has no number for each of the " + std::to_string(layers) + " layers");
  for (const auto& rotates : *listed) {
    if (rotates != 0 && rotates != 1)
      return reader.Fail("no_rope_layers",
                         "holds " + rotates.dump() + "; a layer has 1 (it rotates) or 0");
    config.rotating_layers.push_back(rotates == 1);
  }
}

}  // namespace

Family SmolLm3() {
  return {.model_type = "smollm3",
          .defaults = {.architecture = "SmolLM3ForCausalLM",
                       .num_key_value_heads = 4,
                       .rope_theta = 2e6,
                       .tie_word_embeddings = true},
          .read = ReadSmolLm3};
}

}  // namespace muster
