#include "trainer/ops/geglu.h"

#include "trainer/ops/cuda/gated.cuh"

namespace muster::cuda {
inline namespace geglu_kernels {

struct GeluTanh {
  template <typename Real>
  __device__ __forceinline__ static GateValue<Real> At(Real x) {
    const Real linear = static_cast<Real>(-2 * op::kGeluScale);
    const Real cubic = static_cast<Real>(-2 * op::kGeluScale * op::kGeluCube);
    const Real square = static_cast<Real>(6 * op::kGeluScale * op::kGeluCube);
    // The part of x that gelu lets through.
    const Real share = Real(1) / (Real(1) + Exp(x * (linear + cubic * (x * x))));
    const Real gelu = x * share;
    return {gelu, share + (Real(1) - share) * gelu * (square * (x * x) - linear)};
  }
};

}  // namespace geglu_kernels

CudaResult RunOnCuda(const op::GeGlu& g, KernelScope& scope) {
  return RunGated<GeluTanh>(g, scope);
}

CudaResult RunOnCuda(const op::GeGluBackward& g, KernelScope& scope) {
  return RunGatedBackward<GeluTanh>(g, scope);
}

template CudaResult CudaKernel<op::GeGlu>(const void*, KernelScope&);
template CudaResult CudaKernel<op::GeGluBackward>(const void*, KernelScope&);

}  // namespace muster::cuda
