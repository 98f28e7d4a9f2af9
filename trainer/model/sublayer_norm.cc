#include "trainer/model/sublayer_norm.h"

#include <ATen/ATen.h>

#include "trainer/ops/norm.h"

namespace muster {

const at::Tensor& SublayerNorm::Enter(const ResidualStream& in, const at::Tensor& weight,
                                      NormActivations& kept, at::Tensor& sum,
                                      at::Tensor& scratch) const {
  if (before_) {
    at::Tensor& normed = kept.normed.defined() ? kept.normed : scratch;
    ops_.Run(op::AddNorm{in.sum, in.delta, weight, eps_, sum, normed, kept.scale, zero_centered_});
    return normed;
  }
  if (in.delta.defined()) {
    at::add_out(sum, in.sum, in.delta);
  } else if (!sum.is_same(in.sum)) {
    sum.copy_(in.sum);
  }
  return sum;
}

void SublayerNorm::Leave(const at::Tensor& weight, NormActivations& kept, at::Tensor& delta) const {
  if (!after_) {
    if (multiplier_ != 1) delta.mul_(multiplier_);
    return;
  }
  ops_.Run(op::AddNorm{
      kept.output, {}, weight, eps_, kept.output, delta, kept.output_scale, zero_centered_});
}

at::Tensor& SublayerNorm::Returned(const NormActivations& kept, const at::Tensor& weight,
                                   const GradientTarget& weight_gradient, at::Tensor& gradient,
                                   at::Tensor& scratch) const {
  if (!after_) {
    if (multiplier_ == 1) return gradient;
    return at::mul_out(scratch, gradient, at::scalar_tensor(multiplier_, at::kDouble));
  }
  scratch.zero_();
  ops_.Run(op::NormBackward{gradient, kept.output, weight, kept.output_scale, scratch,
                            weight_gradient, zero_centered_});
  return scratch;
}

const at::Tensor& SublayerNorm::InputAgain(const NormActivations& kept, const at::Tensor& x,
                                           const at::Tensor& weight, at::Tensor& scratch) const {
  if (!before_) return x;
  if (kept.normed.defined()) return kept.normed;
  ops_.Run(op::RecomputeRmsNorm{x, weight, kept.scale, scratch, zero_centered_});
  return scratch;
}

void SublayerNorm::Entered(const at::Tensor& input_gradient, const NormActivations& kept,
                           const at::Tensor& x, const at::Tensor& weight,
                           const GradientTarget& weight_gradient, at::Tensor& gradient) const {
  if (before_) {
    ops_.Run(op::NormBackward{input_gradient, x, weight, kept.scale, gradient, weight_gradient,
                              zero_centered_});
  } else {
    gradient.add_(input_gradient);
  }
}

}  // namespace muster
