#include "trainer/model/loss.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace muster {

at::Tensor LabelLogProbs(const at::Tensor& hidden, const at::Tensor& weight,
                         const at::Tensor& labels) {
  const at::NoGradGuard no_grad;
  const at::Tensor logits = at::linear(hidden, weight).to(at::kFloat);
  return logits.log_softmax(1).gather(1, labels.unsqueeze(1)).squeeze(1);
}

}  // namespace muster
