#include "trainer/model/products.h"

#include <ATen/ATen.h>

#include "trainer/kernels/cpu_features.h"

namespace muster {
namespace {

bool WidensFactors(const at::Tensor& factor) {
  const auto type = factor.scalar_type();
  return factor.device().is_cpu() && (type == at::kBFloat16 || type == at::kHalf) &&
         !ThisCpu().avx512;
}

at::Tensor Widened(const at::Tensor& factor) { return factor.to(at::kFloat); }

}  // namespace

void MultiplyInto(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  if (!WidensFactors(a)) {
    at::mm_out(out, a, b);
  } else {
    out.copy_(at::mm(Widened(a), Widened(b)));
  }
}

void MultiplyAddInto(at::Tensor& out, const at::Tensor& base, const at::Tensor& a,
                     const at::Tensor& b, double beta, double alpha) {
  if (!WidensFactors(a)) {
    at::addmm_out(out, base, a, b, beta, alpha);
  } else {
    out.copy_(at::addmm(Widened(base), Widened(a), Widened(b), beta, alpha));
  }
}

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  if (!WidensFactors(x)) return at::linear(x, weight, optional(bias));
  const at::Tensor wide_bias = bias.defined() ? Widened(bias) : at::Tensor();
  return at::linear(Widened(x), Widened(weight), optional(wide_bias)).to(x.scalar_type());
}

}  // namespace muster
