// Sampler: which token comes next, drawn from a model's logits.
//
// The order of steps is that of transformers: the temperature, then the top_k most likely tokens,
// then the fewest of them that together reach top_p of what is left. Equal seeds and logits give
// equal draws on every machine.
//
// Owned by the code that generates one text; one thread. Draws from what CanBeDrawnFrom says alone;
// anything else is a broken invariant and aborts.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace muster {

struct SamplingOptions {
  double temperature = 0;  // 0: always the most likely token; the lowest id of equal ones
  std::int64_t top_k = 0;  // 0: no bound
  double top_p = 1;        // above 0; 1: no bound
  std::uint64_t seed = 42;
};

struct Candidate {
  std::int64_t id = 0;
  double weight = 0;  // e^((logit - largest logit) / temperature): of the most likely one 1
};

// Whether logits have a distribution: none is NaN or +inf, and one at least is a number. -inf is a
// token that never comes. Pure.
bool CanBeDrawnFrom(std::span<const float> logits);

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {}

  // The index of one of the logits.
  std::int64_t Draw(std::span<const float> logits);

  // What Draw chooses from, in proportion to the weights: by falling weight where top_k or top_p
  // bounds it. The temperature is greater than 0.
  std::vector<Candidate> Candidates(std::span<const float> logits) const;

 private:
  const SamplingOptions options_;
  std::mt19937_64 random_;
};

}  // namespace muster
