#include "trainer/generation/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/check.h"

namespace muster {
namespace {

bool IsMoreLikely(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

double Sum(const std::vector<Candidate>& candidates) {
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  return sum;
}

void KeepMostLikely(std::size_t count, std::vector<Candidate>* candidates) {
  count = std::min(count, candidates->size());
  const auto end = candidates->begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(candidates->begin(), end, candidates->end(), IsMoreLikely);
  candidates->erase(end, candidates->end());
}

// A few tokens hold nearly all of the probability most of the time, so that only they are sorted.
void KeepShare(double share, std::vector<Candidate>* candidates) {
  const double wanted = share * Sum(*candidates);
  double reached = 0;
  std::size_t kept = 0, sorted = 0;
  while (kept < candidates->size() && reached < wanted) {
    if (kept == sorted) {
      const std::size_t more = std::min(candidates->size(), std::max<std::size_t>(64, 4 * sorted));
      const auto begin = candidates->begin();
      std::partial_sort(begin + static_cast<std::ptrdiff_t>(sorted),
                        begin + static_cast<std::ptrdiff_t>(more), candidates->end(), IsMoreLikely);
      sorted = more;
    }
    reached += (*candidates)[kept++].weight;
  }
  candidates->resize(kept);
}

}  // namespace

bool CanBeDrawnFrom(std::span<const float> logits) {
  float best = -std::numeric_limits<float>::infinity();
  for (const float logit : logits) {
    if (std::isnan(logit)) return false;
    best = std::max(best, logit);
  }
  return std::isfinite(best);
}

std::vector<Candidate> Sampler::Candidates(std::span<const float> logits) const {
  const float best = *std::max_element(logits.begin(), logits.end());
  std::vector<Candidate> candidates(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    candidates[i] = {.id = static_cast<std::int64_t>(i),
                     .weight = std::exp((logits[i] - best) / options_.temperature)};
  }
  if (options_.top_k > 0) {
    KeepMostLikely(static_cast<std::size_t>(options_.top_k), &candidates);
  }
  if (options_.top_p < 1) KeepShare(options_.top_p, &candidates);
  return candidates;
}

std::int64_t Sampler::Draw(std::span<const float> logits) {
  if (options_.temperature <= 0) {
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
  }
  const std::vector<Candidate> candidates = Candidates(logits);
  double left = static_cast<double>(random_() >> 11) * 0x1.0p-53 * Sum(candidates);
  for (const Candidate& candidate : candidates) {
    left -= candidate.weight;
    if (left < 0) return candidate.id;
  }
  // Rounding only: the last one that can be drawn at all.
  const auto last = std::find_if(candidates.rbegin(), candidates.rend(),
                                 [](const Candidate& c) { return c.weight > 0; });
  MUSTER_CHECK(last != candidates.rend(), "no logit can be drawn; see CanBeDrawnFrom");
  return last->id;
}

}  // namespace muster
