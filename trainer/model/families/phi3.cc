#include "trainer/model/families/family.h"

namespace muster {
namespace {

void ReadPhi3(ConfigReader& reader, ModelConfig& config) {
  if (reader.Find("sliding_window") != nullptr)
    reader.ReadPositions("sliding_window", &config.sliding_window.emplace());
  for (const char* key : {"resid_pdrop", "embd_pdrop"}) {
    if (const auto* dropout = reader.Find(key); dropout != nullptr && *dropout != 0)
      reader.Refuse(std::string(key) + " other than 0 is not supported by this version");
  }
}

}  // namespace

// Phi-3, Phi-3.5, Phi-4 and Phi-4-mini.
Family Phi3() {
  return {.model_type = "phi3",
          .defaults = {.architecture = "Phi3ForCausalLM",
                       .rms_norm_eps = 1e-5,
                       .max_position_embeddings = 4096},
          .partial_rotary = true,
          .longrope_positions = 4096,
          .fused_projections = true,
          .read = ReadPhi3};
}

}  // namespace muster
