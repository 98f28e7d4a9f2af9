#include "trainer/model/linear.h"

#include <ATen/ATen.h>

#include "trainer/device/scalar_type.h"

namespace muster {

void LinearForward(const at::Tensor& x, const at::Tensor& weight, at::Tensor& y) {
  at::mm_out(y, x, weight.t());
}

void LinearInputGradient(const at::Tensor& y_gradient, const at::Tensor& weight,
                         at::Tensor& x_gradient) {
  at::mm_out(x_gradient, y_gradient, weight);
}

void LinearWeightGradient::Write(const at::Tensor& y_gradient, const at::Tensor& x,
                                 const GradientTarget& target) {
  const at::ScalarType type = x.scalar_type();
  at::Tensor out = target.tensor;
  if (out.scalar_type() == type && target.add) {
    at::addmm_out(out, out, y_gradient.t(), x);
  } else if (out.scalar_type() == type) {
    at::mm_out(out, y_gradient.t(), x);
  } else {
    at::Tensor product;
    scratch_.Fit([&](Cutter& cutter) { product = cutter.Cut(out.sizes(), type); });
    at::mm_out(product, y_gradient.t(), x);
    ops_.Convert(product.const_data_ptr(), ElementTypeOf(type), out.mutable_data_ptr(),
                 ElementTypeOf(out.scalar_type()), out.numel(), target.add);
  }
}

}  // namespace muster
