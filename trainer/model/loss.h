// The cross entropy of the head, forward and backward in one pass over chunks of positions.
//
// Only positions with a label reach the head. Logits exist for one chunk at a time and become their
// own gradient in place; the softmax is fp32 whatever the weights are.
//
// Any thread. No autograd graph is recorded.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace muster {

struct HeadLossOptions {
  // Factor on the loss and on every gradient: 1 / label tokens of the accumulation window.
  double scale = 1.0;
  std::int64_t chunk_rows = 4096;
};

struct HeadLoss {
  double loss = 0;             // scaled sum over the rows
  at::Tensor hidden_gradient;  // [N, H], element type of hidden
  at::Tensor weight_gradient;  // [V, H]; fp32 if there was more than one chunk
};

// hidden [N, H] after the final norm, weight [V, H], labels [N] int64, negative where a row does
// not count; N may be 0.
HeadLoss CrossEntropyHead(const at::Tensor& hidden, const at::Tensor& weight,
                          const at::Tensor& labels, const HeadLossOptions& options);

// The log-probability of each label: hidden [N, H] -> [N] fp32.
at::Tensor LabelLogProbs(const at::Tensor& hidden, const at::Tensor& weight,
                         const at::Tensor& labels);

}  // namespace muster
