#include "trainer/report/expert_load.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <span>
#include <utility>

#include "common/base/check.h"

namespace muster {
namespace {

// `sum`: of the choices.
LayerLoad LoadOf(std::span<const double> choices, double sum) {
  LayerLoad load{.smallest_share = 1};
  double entropy = 0;
  for (const double count : choices) {
    const double share = sum > 0 ? count / sum : 0;
    load.largest_share = std::max(load.largest_share, share);
    load.smallest_share = std::min(load.smallest_share, share);
    if (count == 0) ++load.idle;
    if (share > 0) entropy -= share * std::log(share);
  }
  const auto experts = static_cast<double>(choices.size());
  load.entropy = choices.size() > 1 ? std::min(1.0, entropy / std::log(experts)) : 1;
  return load;
}

double Sum(std::span<const double> choices) {
  return std::accumulate(choices.begin(), choices.end(), 0.0);
}

}  // namespace

double ExpertLoad::choices_of(std::size_t layer) const {
  const auto count = static_cast<std::size_t>(experts);
  return Sum(std::span(choices).subspan(layer * count, count));
}

ExpertLoad MeasureLoad(const ModelConfig& config, std::vector<double> choices) {
  ExpertLoad load;
  if (config.SparseLayers() == 0) return load;
  load.experts = config.experts->count;
  load.per_token = config.experts->per_token;
  load.choices = std::move(choices);
  const auto count = static_cast<std::size_t>(load.experts);
  MUSTER_CHECK(std::ssize(load.choices) == config.SparseLayers() * load.experts,
               "each expert of each layer has a number of choices");
  load.worst = {.smallest_share = 1, .entropy = 1};
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.IsSparse(layer)) continue;
    const auto of_layer = std::span(load.choices).subspan(load.layers.size() * count, count);
    const LayerLoad& each = load.of_layer.emplace_back(LoadOf(of_layer, Sum(of_layer)));
    load.layers.push_back(layer);
    load.worst.largest_share = std::max(load.worst.largest_share, each.largest_share);
    load.worst.smallest_share = std::min(load.worst.smallest_share, each.smallest_share);
    load.worst.entropy = std::min(load.worst.entropy, each.entropy);
    load.worst.idle += each.idle;
  }
  return load;
}

// By hand: a library's shortest form of 0.1 is longer than what is known of it.
std::string ExpertsJson(const ExpertLoad& load, std::int64_t step, std::int64_t generation) {
  std::string text = "{\"step\":" + std::to_string(step) +
                     ",\"generation\":" + std::to_string(generation) + ",\"layers\":{";
  const auto count = static_cast<std::size_t>(load.experts);
  for (std::size_t l = 0; l < load.layers.size(); ++l) {
    const double sum = load.choices_of(l);
    text += (l > 0 ? ",\"" : "\"") + std::to_string(load.layers[l]) + "\":[";
    for (std::size_t e = 0; e < count; ++e) {
      char share[24];
      std::snprintf(share, sizeof share, e > 0 ? ",%.4g" : "%.4g",
                    sum > 0 ? load.choices[l * count + e] / sum : 0);
      text += share;
    }
    text += "]";
  }
  return text + "}}";
}

}  // namespace muster
