#include "trainer/model/loss.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "trainer/model/llama.h"
#include "trainer/model/products.h"

namespace muster {
namespace {

constexpr std::int64_t kPositions = 256;

}  // namespace

LabelScores ScoreLabels(const at::Tensor& hidden, const at::Tensor& weight,
                        const at::Tensor& labels, double logits_scaling, double logit_cap) {
  const at::NoGradGuard no_grad;
  const std::int64_t count = labels.size(0);
  LabelScores scores{.log_probs = at::empty({count}, at::kFloat),
                     .is_best = at::empty({count}, at::kBool)};
  for (std::int64_t begin = 0; begin < count; begin += kPositions) {
    const std::int64_t some = std::min(kPositions, count - begin);
    const at::Tensor label = labels.narrow(0, begin, some);
    at::Tensor logits = Linear(hidden.narrow(0, begin, some), weight);
    if (logits_scaling != 1) logits.div_(logits_scaling);
    logits = CapLogits(logits.to(at::kFloat), logit_cap).log_softmax(1);
    const at::Tensor chosen = logits.gather(1, label.unsqueeze(1)).squeeze(1);
    scores.log_probs.narrow(0, begin, some).copy_(chosen);
    scores.is_best.narrow(0, begin, some).copy_(chosen.ge(logits.amax(1)));
  }
  return scores;
}

}  // namespace muster
