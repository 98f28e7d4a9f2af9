// The bounded activation of experts: forward a thread has an element, backward a block has a row.
#include "trainer/ops/clamped_swiglu.h"

#include "trainer/ops/cuda/kernel.cuh"

namespace muster::cuda {
inline namespace clamped_swiglu_kernels {

constexpr unsigned kThreads = 256;

template <typename T>
__device__ __forceinline__ op::ClampedGate<Wide<T>> GateAt(const T* gate_up, std::int64_t i,
                                                           const ClampedSwiGluForm& form) {
  using Real = Wide<T>;
  op::ClampedGate<Real> at(Read(gate_up[2 * i]), Read(gate_up[2 * i + 1]),
                           static_cast<Real>(form.limit));
  at.sigmoid = Real(1) / (Real(1) + Exp(-static_cast<Real>(form.alpha) * at.gate));
  return at;
}

template <typename T>
__global__ void ClampedSwiGluKernel(op::ClampedSwiGlu g, std::int64_t elements) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= elements) return;
  const std::int64_t row = index / g.out.width();
  Write(g.out.data<T>() + index,
        g.weights.data<Wide<T>>()[row] * GateAt(g.gate_up.data<T>(), index, g.form).Value());
}

template <typename T>
__global__ void ClampedSwiGluBackwardKernel(op::ClampedSwiGluBackward g) {
  using Real = Wide<T>;
  const std::int64_t width = g.out.width(), row = blockIdx.x;
  T* const gate_up = g.gate_up.data<T>() + row * 2 * width;
  const Real weight = g.weights.data<Real>()[row];
  const Real alpha = static_cast<Real>(g.form.alpha);
  Real weight_gradient = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const op::ClampedGate<Real> at = GateAt(gate_up, i, g.form);
    const Real of_out = Read(g.out_gradient.data<T>()[row * width + i]);
    const Real d = weight * of_out;
    weight_gradient += of_out * at.Value();
    Write(g.out.data<T>() + row * width + i, weight * at.Value());
    Write(&gate_up[2 * i], d * at.GateSlope(alpha));
    Write(&gate_up[2 * i + 1], d * at.UpSlope());
  }
  weight_gradient = BlockSum(weight_gradient);
  if (threadIdx.x == 0) g.weight_gradients.data<Real>()[row] = weight_gradient;
}

}  // namespace clamped_swiglu_kernels

CudaResult RunOnCuda(const op::ClampedSwiGlu& g, KernelScope& scope) {
  const std::int64_t elements = g.out.rows() * g.out.width();
  return WithElement(g.out.type(), [&]<typename T>(T*) {
    return Launch(ClampedSwiGluKernel<T>, BlocksFor(elements, kThreads), kThreads, 0,
                  scope.stream(), g, elements);
  });
}

CudaResult RunOnCuda(const op::ClampedSwiGluBackward& g, KernelScope& scope) {
  return WithElement(g.out.type(), [&]<typename T>(T*) {
    return Launch(ClampedSwiGluBackwardKernel<T>, static_cast<unsigned>(g.out.rows()), kThreads, 0,
                  scope.stream(), g);
  });
}

template CudaResult CudaKernel<op::ClampedSwiGlu>(const void*, KernelScope&);
template CudaResult CudaKernel<op::ClampedSwiGluBackward>(const void*, KernelScope&);

}  // namespace muster::cuda
