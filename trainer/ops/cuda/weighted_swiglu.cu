// The gated activation of experts: forward a thread has an element, backward a block has a row.
#include "trainer/ops/weighted_swiglu.h"

#include "trainer/ops/cuda/kernel.cuh"

namespace muster::cuda {
inline namespace weighted_swiglu_kernels {

constexpr unsigned kThreads = 256;

template <typename Real>
__device__ __forceinline__ Real Sigmoid(Real x) {
  return Real(1) / (Real(1) + Exp(-x));
}

template <typename T>
__global__ void WeightedSwiGluKernel(op::WeightedSwiGlu g, std::int64_t elements) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= elements) return;
  const std::int64_t width = g.out.width(), row = index / width;
  const T* const gate = g.gate_up.data<T>() + row * width + index;  // row * 2 * width + column
  const Wide<T> x = Read(gate[0]);
  Write(g.out.data<T>() + index,
        g.weights.data<Wide<T>>()[row] * (x * Sigmoid(x) * Read(gate[width])));
}

template <typename T>
__global__ void WeightedSwiGluBackwardKernel(op::WeightedSwiGluBackward g) {
  using Real = Wide<T>;
  const std::int64_t width = g.out.width(), row = blockIdx.x;
  T* const gate = g.gate_up.data<T>() + row * 2 * width;
  T* const up = gate + width;
  const Real weight = g.weights.data<Real>()[row];
  Real weight_gradient = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const Real x = Read(gate[i]);
    const Real y = Read(up[i]);
    const Real of_out = Read(g.out_gradient.data<T>()[row * width + i]);
    const Real sigmoid = Sigmoid(x);
    const Real silu = x * sigmoid;
    const Real d = weight * of_out;
    weight_gradient += of_out * (silu * y);
    Write(g.out.data<T>() + row * width + i, weight * (silu * y));
    Write(&up[i], d * silu);
    Write(&gate[i], d * y * (sigmoid + silu * (Real(1) - sigmoid)));
  }
  weight_gradient = BlockSum(weight_gradient);
  if (threadIdx.x == 0) g.weight_gradients.data<Real>()[row] = weight_gradient;
}

}  // namespace weighted_swiglu_kernels

CudaResult RunOnCuda(const op::WeightedSwiGlu& g, KernelScope& scope) {
  const std::int64_t elements = g.out.rows() * g.out.width();
  return WithElement(g.out.type(), [&]<typename T>(T*) {
    return Launch(WeightedSwiGluKernel<T>, BlocksFor(elements, kThreads), kThreads, 0,
                  scope.stream(), g, elements);
  });
}

CudaResult RunOnCuda(const op::WeightedSwiGluBackward& g, KernelScope& scope) {
  return WithElement(g.out.type(), [&]<typename T>(T*) {
    return Launch(WeightedSwiGluBackwardKernel<T>, static_cast<unsigned>(g.out.rows()), kThreads, 0,
                  scope.stream(), g);
  });
}

template CudaResult CudaKernel<op::WeightedSwiGlu>(const void*, KernelScope&);
template CudaResult CudaKernel<op::WeightedSwiGluBackward>(const void*, KernelScope&);

}  // namespace muster::cuda
