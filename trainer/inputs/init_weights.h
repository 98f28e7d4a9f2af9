// Random weights for a new model, as transformers initialises a Llama: normal(0, 0.02), norms 1,
// biases 0.
//
// The same seed gives the same file on every machine. Blocks on the file system; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "trainer/core/model_config.h"

namespace muster {

// Writes dir/model.safetensors in the element type config.torch_dtype.
Status WriteRandomWeights(const ModelConfig& config, std::uint64_t seed, const std::string& dir);

}  // namespace muster
