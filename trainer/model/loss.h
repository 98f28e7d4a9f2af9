// What a model says about given continuations, for scoring. The loss of training is
// trainer/model/llama_head.h.
//
// Any thread. No graph is recorded. Shape errors are Torch exceptions.
#pragma once

#include <ATen/core/Tensor.h>

namespace muster {

struct LabelScores {
  at::Tensor log_probs;  // [N] fp32
  at::Tensor is_best;    // [N] bool: no token is more likely
};

// Scores each label: hidden [N, H] after the final norm, weight [V, H], labels [N] int64; logits
// are divided by logits_scaling and capped as ModelConfig says. Those of a bounded number of
// positions are there at a time.
LabelScores ScoreLabels(const at::Tensor& hidden, const at::Tensor& weight,
                        const at::Tensor& labels, double logits_scaling = 1, double logit_cap = 0);

}  // namespace muster
