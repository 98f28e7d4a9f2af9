#include "trainer/ops/swiglu.h"

#include "trainer/ops/cuda/gated.cuh"

namespace muster::cuda {
inline namespace swiglu_kernels {

struct Silu {
  template <typename Real>
  __device__ __forceinline__ static GateValue<Real> At(Real x) {
    const Real sigmoid = Real(1) / (Real(1) + Exp(-x));
    const Real silu = x * sigmoid;
    return {silu, sigmoid + silu * (Real(1) - sigmoid)};
  }
};

}  // namespace swiglu_kernels

CudaResult RunOnCuda(const op::SwiGlu& g, KernelScope& scope) { return RunGated<Silu>(g, scope); }

CudaResult RunOnCuda(const op::SwiGluBackward& g, KernelScope& scope) {
  return RunGatedBackward<Silu>(g, scope);
}

template CudaResult CudaKernel<op::SwiGlu>(const void*, KernelScope&);
template CudaResult CudaKernel<op::SwiGluBackward>(const void*, KernelScope&);

}  // namespace muster::cuda
