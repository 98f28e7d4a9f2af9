// ExpertLoad: how evenly the routers of a model spread a step's tokens over its experts.
//
// Plain values and pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/core/model_config.h"

namespace muster {

// A token makes as many choices as it is given experts; shares are of a layer's choices.
struct LayerLoad {
  double largest_share = 0;   // of one expert; at most 1 / choices of a token
  double smallest_share = 0;  // at most 1 / experts, which is even
  double entropy = 0;         // of the shares, over that of even ones: 1 is even, 0 is one expert
  std::int64_t idle = 0;      // experts that no token was given
};

// How often each expert was chosen in one step, over all ranks; padding does not count.
struct ExpertLoad {
  std::int64_t experts = 0;          // of a layer
  std::int64_t per_token = 0;        // choices of a token
  std::vector<std::int64_t> layers;  // the numbers of those that have experts
  std::vector<LayerLoad> of_layer;   // in their order
  std::vector<double> choices;       // [layers, experts]: how often each was chosen
  // The largest, the smallest and the least of all layers, and all that were idle.
  LayerLoad worst;

  double choices_of(std::size_t layer) const;
};

// `choices` are StepNumbers::expert_choices. A model without experts has no layers.
ExpertLoad MeasureLoad(const ModelConfig& config, std::vector<double> choices);

// A line of experts.jsonl: {"step": ..., "generation": ..., "layers": {"0": [share of expert 0,
// ...], ...}}, shares to four digits.
std::string ExpertsJson(const ExpertLoad& load, std::int64_t step, std::int64_t generation);

}  // namespace muster
