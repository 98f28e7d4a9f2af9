// The units of a decoder: which tensors are gathered together, by their Hugging
// Face names.
//
// Unit 0 is the embedding, then come the blocks, one or several to a unit, and last the final norm
// with the head. With tied embeddings the head unit holds the norm only. A block with a mixture of
// experts is two units, the second one with its experts alone.
//
// Pure; any thread.
#pragma once

#include <vector>

#include "trainer/core/flat_layout.h"
#include "trainer/core/model_config.h"

namespace muster {

// `blocks_per_unit` blocks make a unit; the last one may have fewer. 1 where there are experts.
std::vector<UnitSpec> ModelUnits(const ModelConfig& config, int blocks_per_unit = 1);

// The tensors of all units, in the order of the units.
std::vector<UnitTensor> ModelTensors(const ModelConfig& config);

}  // namespace muster
