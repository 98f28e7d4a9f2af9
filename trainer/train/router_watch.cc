#include "trainer/train/router_watch.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

namespace muster {
namespace {

// Where even shares give an expert most of the tokens, more than `kTaken` of them is no sign.
double TakenShare(const ExpertLoad& load) {
  const auto experts = static_cast<double>(load.experts);
  const auto per_token = static_cast<double>(load.per_token);
  return std::max(RouterWatch::kTaken, (1 + per_token / experts) / 2) / per_token;
}

// The one that is chosen most.
std::size_t ExpertAt(const ExpertLoad& load, std::size_t layer) {
  const auto begin = load.choices.begin() + static_cast<std::ptrdiff_t>(layer) * load.experts;
  return static_cast<std::size_t>(
      std::distance(begin, std::max_element(begin, begin + load.experts)));
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

std::optional<std::string> RouterWatch::Look(const ExpertLoad& load) {
  if (load.layers.empty() || load.per_token == load.experts) return std::nullopt;
  taken_.resize(load.layers.size());
  unused_.resize(load.choices.size());
  std::optional<std::string> taken = LookForTaken(load), idle = LookForIdle(load);
  if (!taken && !idle) return std::nullopt;
  return (taken ? *taken + (idle ? "; " + *idle : "") : *idle) + "; " + Advice();
}

std::optional<std::string> RouterWatch::LookForTaken(const ExpertLoad& load) {
  std::size_t first = 0, layers = 0;
  for (std::size_t l = 0; l < taken_.size(); ++l) {
    const bool now = load.of_layer[l].largest_share > TakenShare(load);
    taken_[l] = now ? taken_[l] + 1 : 0;
    if (taken_[l] >= kTakenSteps && layers++ == 0) first = l;
  }
  const bool new_sign = layers > 0 && !said_taken_;
  said_taken_ = layers > 0;
  if (!new_sign) return std::nullopt;
  const double share =
      load.of_layer[first].largest_share * static_cast<double>(load.per_token) * 100;
  return "the router of layer " + std::to_string(load.layers[first]) + " gives expert " +
         std::to_string(ExpertAt(load, first)) + " " + Number(static_cast<int>(share)) +
         " % of the tokens, for " + std::to_string(kTakenSteps) + " steps" +
         (layers > 1 ? ", and those of " + std::to_string(layers - 1) + " more layers do alike"
                     : "");
}

std::optional<std::string> RouterWatch::LookForIdle(const ExpertLoad& load) {
  const auto experts = static_cast<std::size_t>(load.experts);
  std::size_t first = 0, idle = 0;
  for (std::size_t l = 0; l < taken_.size(); ++l) {
    const double even = load.choices_of(l) / static_cast<double>(load.experts);
    for (std::size_t i = l * experts; i < (l + 1) * experts; ++i) {
      Unused& unused = unused_[i];
      unused = load.choices[i] > 0 ? Unused() : Unused{unused.steps + 1, unused.tokens + even};
      if (unused.steps >= kIdleSteps && unused.tokens >= kIdleTokens && idle++ == 0) first = i;
    }
  }
  const bool new_sign = idle > 0 && !said_idle_;
  said_idle_ = idle > 0;
  if (!new_sign) return std::nullopt;
  return "expert " + std::to_string(first % experts) + " of layer " +
         std::to_string(load.layers[first / experts]) +
         (idle > 1 ? " and " + std::to_string(idle - 1) + " more experts were" : " was") +
         " given no token in the last " + std::to_string(kIdleSteps) + " steps";
}

std::string RouterWatch::Advice() const {
  if (!settings_.trained)
    return "the routers are frozen beside adapters, so these rows do not need the others: adapters "
           "on q_proj, k_proj, v_proj and o_proj alone may do";
  if (settings_.balance_coefficient == 0)
    return "set output_router_logits: true and a router_aux_loss_coef in the model's config.json, "
           "or lower train.optimizer.lr";
  return "raise router_aux_loss_coef (" + Number(settings_.balance_coefficient) +
         ") in the model's config.json, or lower train.optimizer.lr";
}

}  // namespace muster
