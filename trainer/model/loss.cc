#include "trainer/model/loss.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace muster {
namespace {

// Turns fp32 logits [N, V] into the gradient of the scaled loss; returns the scaled loss. A row
// with a negative label counts for nothing.
double LogitsToGradient(at::Tensor& logits, const at::Tensor& labels, double scale) {
  const at::Tensor index = labels.clamp_min(0).unsqueeze(1);
  const at::Tensor scales = labels.ge(0).to(at::kFloat).mul_(scale).unsqueeze(1);
  const at::Tensor label_logits = logits.gather(1, index);
  const at::Tensor normalizer = logits.logsumexp(1, true);
  const at::Tensor losses = (normalizer - label_logits).to(at::kDouble).mul_(scales);
  logits.sub_(normalizer).exp_().mul_(scales);
  logits.scatter_add_(1, index, -scales);
  return losses.sum().item<double>();
}

}  // namespace

HeadLoss CrossEntropyHead(const at::Tensor& hidden, const at::Tensor& weight,
                          const at::Tensor& labels, const HeadLossOptions& options) {
  const at::NoGradGuard no_grad;
  HeadLoss result;
  const std::int64_t rows = hidden.size(0);
  result.hidden_gradient = at::empty_like(hidden);
  for (std::int64_t begin = 0; begin < rows; begin += options.chunk_rows) {
    const std::int64_t count = std::min(options.chunk_rows, rows - begin);
    const at::Tensor chunk = hidden.narrow(0, begin, count);
    at::Tensor logits = at::linear(chunk, weight).to(at::kFloat);
    result.loss += LogitsToGradient(logits, labels.narrow(0, begin, count), options.scale);
    const at::Tensor gradient = logits.to(hidden.scalar_type());
    at::Tensor chunk_gradient = result.hidden_gradient.narrow(0, begin, count);
    at::mm_out(chunk_gradient, gradient, weight);
    const at::Tensor weight_gradient = at::mm(gradient.t(), chunk);
    if (begin == 0) {
      result.weight_gradient = count < rows ? weight_gradient.to(at::kFloat) : weight_gradient;
    } else {
      result.weight_gradient.add_(weight_gradient);
    }
  }
  if (rows == 0) result.weight_gradient = at::zeros_like(weight);
  return result;
}

at::Tensor LabelLogProbs(const at::Tensor& hidden, const at::Tensor& weight,
                         const at::Tensor& labels) {
  const at::NoGradGuard no_grad;
  const at::Tensor logits = at::linear(hidden, weight).to(at::kFloat);
  return logits.log_softmax(1).gather(1, labels.unsqueeze(1)).squeeze(1);
}

}  // namespace muster
