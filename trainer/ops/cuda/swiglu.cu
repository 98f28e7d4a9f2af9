// Gated activation: a thread has a pack of elements.
#include "trainer/ops/swiglu.h"

#include "trainer/ops/cuda/kernel.cuh"

namespace muster::cuda {
namespace {

constexpr unsigned kThreads = 256;

template <typename Real>
__device__ __forceinline__ Real Sigmoid(Real x) {
  return Real(1) / (Real(1) + Exp(-x));
}

// `packs` of `out`.
template <typename T, int N>
__global__ void SwiGluKernel(op::SwiGlu g, std::int64_t packs) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= packs) return;
  const std::int64_t width = g.out.width(), row = index * N / width;
  const T* const from = g.gate_up.data<T>() + row * width + index * N;  // row * 2 * width + column
  const Pack<T, N> gate = ReadPack<N>(from);
  const Pack<T, N> up = ReadPack<N>(from + width);
  Pack<T, N> out;
  for (int k = 0; k < N; ++k) {
    const Wide<T> x = Read(gate.at[k]);
    Write(&out.at[k], x * Sigmoid(x) * Read(up.at[k]));
  }
  WritePack(g.out.data<T>() + index * N, out);
}

template <typename T, int N>
__global__ void SwiGluBackwardKernel(op::SwiGluBackward g, std::int64_t packs) {
  using Real = Wide<T>;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= packs) return;
  const std::int64_t width = g.out.width(), row = index * N / width;
  T* const at = g.gate_up.data<T>() + row * width + index * N;
  Pack<T, N> gate = ReadPack<N>(at);
  Pack<T, N> up = ReadPack<N>(at + width);
  const Pack<T, N> gradient = ReadPack<N>(g.out_gradient.data<T>() + index * N);
  Pack<T, N> out;
  for (int k = 0; k < N; ++k) {
    const Real x = Read(gate.at[k]);
    const Real y = Read(up.at[k]);
    const Real d = Read(gradient.at[k]);
    const Real sigmoid = Sigmoid(x);
    const Real silu = x * sigmoid;
    Write(&out.at[k], silu * y);
    Write(&up.at[k], d * silu);
    Write(&gate.at[k], d * y * (sigmoid + silu * (Real(1) - sigmoid)));
  }
  WritePack(g.out.data<T>() + index * N, out);
  WritePack(at, gate);
  WritePack(at + width, up);
}

}  // namespace

CudaResult RunOnCuda(const op::SwiGlu& g, KernelScope& scope) {
  return WithElement(g.out.type(), [&]<typename T>(T*) {
    const bool packed = g.out.width() % kPack<T> == 0 && Aligned(g.gate_up.data(), g.out.data());
    const std::int64_t packs = g.out.count() / (packed ? kPack<T> : 1);
    return Launch(packed ? SwiGluKernel<T, kPack<T>> : SwiGluKernel<T, 1>,
                  BlocksFor(packs, kThreads), kThreads, 0, scope.stream(), g, packs);
  });
}

CudaResult RunOnCuda(const op::SwiGluBackward& g, KernelScope& scope) {
  return WithElement(g.out.type(), [&]<typename T>(T*) {
    const bool packed = g.out.width() % kPack<T> == 0 &&
                        Aligned(g.gate_up.data(), g.out_gradient.data(), g.out.data());
    const std::int64_t packs = g.out.count() / (packed ? kPack<T> : 1);
    return Launch(packed ? SwiGluBackwardKernel<T, kPack<T>> : SwiGluBackwardKernel<T, 1>,
                  BlocksFor(packs, kThreads), kThreads, 0, scope.stream(), g, packs);
  });
}

template CudaResult CudaKernel<op::SwiGlu>(const void*, KernelScope&);
template CudaResult CudaKernel<op::SwiGluBackward>(const void*, KernelScope&);

}  // namespace muster::cuda
