// Dropout by the mask of trainer/ops/cpu/dropout.h: a thread has a pack of elements of one row.
#include "trainer/ops/cuda/kernels/tools.cuh"

namespace muster::cuda {
namespace {

constexpr unsigned kThreads = 256;

template <typename T>
struct Elements {
  std::int64_t packs;  // in all
  std::int64_t width;
  DropoutKey key;
  std::uint32_t threshold;
  Wide<T> scale;
  const T* x;
  T* out;
};

template <typename T, int N>
__global__ void DropoutKernel(Elements<T> e) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= e.packs) return;
  const std::int64_t row = index * N / e.width;
  const auto column = static_cast<std::uint32_t>(index * N - row * e.width);
  const DropoutKey key = PartOfKey(e.key, static_cast<std::uint64_t>(row));
  Pack<T, N> pack = ReadPack<N>(e.x + index * N);
  for (int k = 0; k < N; ++k) {
    const bool counts = DropoutNumber(key, column + static_cast<std::uint32_t>(k)) >= e.threshold;
    const Wide<T> scaled = Read(pack.at[k]) * e.scale;
    Write(&pack.at[k], counts ? scaled : Wide<T>(0));
  }
  WritePack(e.out + index * N, pack);
}

template <typename T, int N>
CudaResult LaunchDropout(const Drop& d, CudaStream stream) {
  const Elements<T> elements{d.rows * d.width / N,
                             d.width,
                             d.key,
                             DropoutThreshold(d.p),
                             static_cast<Wide<T>>(1 / (1 - d.p)),
                             static_cast<const T*>(d.x),
                             static_cast<T*>(d.out)};
  return Launch(DropoutKernel<T, N>, BlocksFor(elements.packs, kThreads), kThreads, 0, stream,
                elements);
}

}  // namespace

CudaResult Dropout(const Drop& d, CudaStream stream) {
  return WithElement(d.type, [&]<typename T>(T*) {
    const bool packs = d.width % kPack<T> == 0 && Aligned(d.x, d.out);
    return packs ? LaunchDropout<T, kPack<T>>(d, stream) : LaunchDropout<T, 1>(d, stream);
  });
}

}  // namespace muster::cuda
