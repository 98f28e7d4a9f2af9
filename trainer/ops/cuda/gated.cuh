// The kernels of gated activations, gate(x) * up: a thread has a pack of elements.
//
// `Gate` is an activation: Gate::At(x) has its `value` and its `slope`, and `Op` the operator's
// arguments.
#pragma once

#include "trainer/ops/cuda/kernel.cuh"

namespace muster::cuda {

inline constexpr unsigned kGatedThreads = 256;

template <typename Real>
struct GateValue {
  Real value, slope;
};

// `packs` of `out`.
template <typename Gate, typename T, int N, typename Op>
__global__ void GatedKernel(Op g, std::int64_t packs) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= packs) return;
  const std::int64_t width = g.out.width(), row = index * N / width;
  const T* const from =
      g.gate_up.template data<T>() + row * width + index * N;  // row * 2 * width + column
  const Pack<T, N> gate = ReadPack<N>(from);
  const Pack<T, N> up = ReadPack<N>(from + width);
  Pack<T, N> out;
  for (int k = 0; k < N; ++k) Write(&out.at[k], Gate::At(Read(gate.at[k])).value * Read(up.at[k]));
  WritePack(g.out.template data<T>() + index * N, out);
}

template <typename Gate, typename T, int N, typename Op>
__global__ void GatedBackwardKernel(Op g, std::int64_t packs) {
  using Real = Wide<T>;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= packs) return;
  const std::int64_t width = g.out.width(), row = index * N / width;
  T* const at = g.gate_up.template data<T>() + row * width + index * N;
  Pack<T, N> gate = ReadPack<N>(at);
  Pack<T, N> up = ReadPack<N>(at + width);
  const Pack<T, N> gradient = ReadPack<N>(g.out_gradient.template data<T>() + index * N);
  Pack<T, N> out;
  for (int k = 0; k < N; ++k) {
    const GateValue<Real> x = Gate::At(Read(gate.at[k]));
    const Real y = Read(up.at[k]);
    const Real d = Read(gradient.at[k]);
    Write(&out.at[k], x.value * y);
    Write(&up.at[k], d * x.value);
    Write(&gate.at[k], d * y * x.slope);
  }
  WritePack(g.out.template data<T>() + index * N, out);
  WritePack(at, gate);
  WritePack(at + width, up);
}

template <typename Gate, typename Op>
CudaResult RunGated(const Op& g, KernelScope& scope) {
  return WithElement(g.out.type(), [&]<typename T>(T*) {
    const bool packed = g.out.width() % kPack<T> == 0 && Aligned(g.gate_up.data(), g.out.data());
    const std::int64_t packs = g.out.count() / (packed ? kPack<T> : 1);
    return Launch(packed ? GatedKernel<Gate, T, kPack<T>, Op> : GatedKernel<Gate, T, 1, Op>,
                  BlocksFor(packs, kGatedThreads), kGatedThreads, 0, scope.stream(), g, packs);
  });
}

template <typename Gate, typename Op>
CudaResult RunGatedBackward(const Op& g, KernelScope& scope) {
  return WithElement(g.out.type(), [&]<typename T>(T*) {
    const bool packed = g.out.width() % kPack<T> == 0 &&
                        Aligned(g.gate_up.data(), g.out_gradient.data(), g.out.data());
    const std::int64_t packs = g.out.count() / (packed ? kPack<T> : 1);
    return Launch(
        packed ? GatedBackwardKernel<Gate, T, kPack<T>, Op> : GatedBackwardKernel<Gate, T, 1, Op>,
        BlocksFor(packs, kGatedThreads), kGatedThreads, 0, scope.stream(), g, packs);
  });
}

}  // namespace muster::cuda
