// The units of a Llama decoder: which tensors are gathered together, by their Hugging Face names.
//
// Unit 0 is the embedding, units 1 .. num_hidden_layers are the blocks, the last one is the final
// norm with the head. With tied embeddings the head unit holds the norm only.
//
// Pure; any thread.
#pragma once

#include <vector>

#include "trainer/core/flat_layout.h"
#include "trainer/core/model_config.h"

namespace muster {

// Positions of a block's tensors in its unit. The joined ones make up one matrix each: query, key
// and value; gate and up.
enum BlockTensor {
  kInputNorm,
  kQuery,
  kKey,
  kValue,
  kAttentionOutput,
  kPostNorm,
  kGate,
  kUp,
  kDown,
  kBlockTensorCount,
};

std::vector<UnitSpec> LlamaUnits(const ModelConfig& config);

// The tensors of all units, in the order of the units.
std::vector<UnitTensor> LlamaTensors(const ModelConfig& config);

}  // namespace muster
