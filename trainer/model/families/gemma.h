// What Gemma 2 and Gemma 3 share.
#pragma once

#include <cstdint>

#include "trainer/model/families/family.h"

namespace muster {

// Norms on both sides of attention and feed-forward, whose weights lie around zero; a GELU; tied
// embeddings, which are scaled; windows in some layers.
ModelConfig GemmaDefaults(const char* architecture);
// Without layer_types every `interval`-th layer has no window.
void ReadGemma(ConfigReader& reader, ModelConfig& config, std::int64_t interval);

}  // namespace muster
