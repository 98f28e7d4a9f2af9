// What a model says about given continuations, for scoring. The loss of training is
// trainer/model/llama_head.h.
//
// Any thread. No graph is recorded. Shape errors are Torch exceptions.
#pragma once

#include <ATen/core/Tensor.h>

namespace muster {

// The log-probability of each label: hidden [N, H] after the final norm, weight [V, H], labels [N]
// int64 -> [N] fp32.
at::Tensor LabelLogProbs(const at::Tensor& hidden, const at::Tensor& weight,
                         const at::Tensor& labels);

}  // namespace muster
