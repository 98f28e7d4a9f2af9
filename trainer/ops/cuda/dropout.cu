// Dropout: a thread has a pack of elements of one row.
#include "trainer/ops/dropout.h"

#include "trainer/ops/cuda/kernel.cuh"

namespace muster::cuda {
inline namespace dropout_kernels {

constexpr unsigned kThreads = 256;

template <typename T, int N>
__global__ void DropoutKernel(op::Dropout d, std::int64_t packs, std::uint32_t threshold,
                              Wide<T> scale) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= packs) return;
  const std::int64_t width = d.x.width(), row = index * N / width;
  const auto column = static_cast<std::uint32_t>(index * N - row * width);
  const DropoutKey key = PartOfKey(d.key, static_cast<std::uint64_t>(row));
  Pack<T, N> pack = ReadPack<N>(d.x.data<T>() + index * N);
  for (int k = 0; k < N; ++k) {
    const bool counts = DropoutNumber(key, column + static_cast<std::uint32_t>(k)) >= threshold;
    const Wide<T> scaled = Read(pack.at[k]) * scale;
    Write(&pack.at[k], counts ? scaled : Wide<T>(0));
  }
  WritePack(d.out.data<T>() + index * N, pack);
}

}  // namespace dropout_kernels

CudaResult RunOnCuda(const op::Dropout& d, KernelScope& scope) {
  return WithElement(d.x.type(), [&]<typename T>(T*) {
    const bool packed = d.x.width() % kPack<T> == 0 && Aligned(d.x.data(), d.out.data());
    const std::int64_t packs = d.x.count() / (packed ? kPack<T> : 1);
    return Launch(packed ? DropoutKernel<T, kPack<T>> : DropoutKernel<T, 1>,
                  BlocksFor(packs, kThreads), kThreads, 0, scope.stream(), d, packs,
                  DropoutThreshold(d.p), static_cast<Wide<T>>(1 / (1 - d.p)));
  });
}

template CudaResult CudaKernel<op::Dropout>(const void*, KernelScope&);

}  // namespace muster::cuda
