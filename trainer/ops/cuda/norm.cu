// RMS norm with the residual addition before it. A block has a row; backward, a run of rows.
#include "trainer/ops/norm.h"

#include "trainer/ops/cuda/join_parts.cuh"
#include "trainer/ops/cuda/kernel.cuh"

namespace muster::cuda {
inline namespace norm_kernels {

constexpr unsigned kThreads = 256;
// Runs of rows whose parts of the weight's gradient are kept apart.
constexpr std::int64_t kMostParts = 256;
// Parts stay in shared memory up to here.
constexpr std::size_t kSharedBytes = 48 * 1024;

template <int N, typename T>
__device__ void ApplyNorm(const T* sums, const T* weights, bool zero_centered, Wide<T> scale,
                          T* to) {
  const Pack<T, N> sum = ReadPack<N>(sums);
  const Pack<T, N> weight = ReadPack<N>(weights);
  Pack<T, N> y;
  for (int k = 0; k < N; ++k) {
    Write(&y.at[k], Normed(sum.at[k], scale, weight.at[k], zero_centered));
  }
  WritePack(to, y);
}

template <typename T, int N>
__global__ void AddNormKernel(op::AddNorm n) {
  const std::int64_t width = n.x.width(), first = blockIdx.x * width;
  const T* const x = n.x.data<T>() + first;
  const T* const delta = n.delta.defined() ? n.delta.data<T>() + first : nullptr;
  T* const sums = n.sum.data<T>() + first;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
  Wide<T> squares = 0;
  for (std::int64_t column = threadIdx.x * N; column < width; column += step) {
    Pack<T, N> sum = ReadPack<N>(x + column);
    if (delta != nullptr) {
      const Pack<T, N> added = ReadPack<N>(delta + column);
      for (int k = 0; k < N; ++k) Write(&sum.at[k], Read(sum.at[k]) + Read(added.at[k]));
    }
    for (int k = 0; k < N; ++k) squares += Read(sum.at[k]) * Read(sum.at[k]);
    WritePack(sums + column, sum);
  }
  const Wide<T> mean = BlockSum(squares) / static_cast<Wide<T>>(width);
  const Wide<T> scale = Wide<T>(1) / Root(mean + static_cast<Wide<T>>(n.eps));
  if (threadIdx.x == 0) n.scale.data<Wide<T>>()[blockIdx.x] = scale;
  for (std::int64_t column = threadIdx.x * N; column < width; column += step) {
    ApplyNorm<N>(sums + column, n.weight.data<T>() + column, n.zero_centered, scale,
                 n.y.data<T>() + first + column);
  }
}

template <typename T, int N>
__global__ void RecomputeRmsNormKernel(op::RecomputeRmsNorm n) {
  const std::int64_t width = n.sum.width(), first = blockIdx.x * width;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
  const Wide<T> scale = n.scale.data<Wide<T>>()[blockIdx.x];
  for (std::int64_t column = threadIdx.x * N; column < width; column += step) {
    ApplyNorm<N>(n.sum.data<T>() + first + column, n.weight.data<T>() + column, n.zero_centered,
                 scale, n.y.data<T>() + first + column);
  }
}

// A column belongs to one thread, so its part of the weight's gradient needs no barrier. `parts`
// [blocks, width]; null: the weight is frozen. `shared`: the block's part fits into shared memory.
template <typename T, int N>
__global__ void NormBackwardKernel(op::NormBackward n, std::int64_t rows_per_block, Wide<T>* parts,
                                   bool shared) {
  using Real = Wide<T>;
#if defined(__CUDACC__)
  extern __shared__ double dynamic_shared[];
#else
  double* const dynamic_shared = static_cast<double*>(emulation::DynamicShared());
#endif
  const std::int64_t rows = n.sum.rows(), width = n.sum.width();
  const T* const weights = n.weight.data<T>();
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
  const bool frozen = parts == nullptr;
  Real* const own = parts + (frozen ? 0 : blockIdx.x * width);
  Real* const part = shared ? reinterpret_cast<Real*>(dynamic_shared) : own;
  for (std::int64_t column = threadIdx.x * N; !frozen && column < width; column += step) {
    for (int k = 0; k < N; ++k) part[column + k] = 0;
  }
  const std::int64_t begin = blockIdx.x * rows_per_block;
  const std::int64_t end = begin + rows_per_block < rows ? begin + rows_per_block : rows;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const sum = n.sum.data<T>() + row * width;
    const T* const y_gradient = n.y_gradient.data<T>() + row * width;
    T* const gradient = n.gradient.data<T>() + row * width;
    Real product = 0;
    for (std::int64_t column = threadIdx.x * N; column < width; column += step) {
      const Pack<T, N> x = ReadPack<N>(sum + column);
      const Pack<T, N> dy = ReadPack<N>(y_gradient + column);
      const Pack<T, N> weight = ReadPack<N>(weights + column);
      for (int k = 0; k < N; ++k) {
        product += Read(dy.at[k]) * GainOf(weight.at[k], n.zero_centered) * Read(x.at[k]);
      }
    }
    const Real scale = n.scale.data<Real>()[row];
    const Real along = BlockSum(product) * scale * scale * scale / static_cast<Real>(width);
    for (std::int64_t column = threadIdx.x * N; column < width; column += step) {
      const Pack<T, N> x = ReadPack<N>(sum + column);
      const Pack<T, N> dy = ReadPack<N>(y_gradient + column);
      const Pack<T, N> weight = ReadPack<N>(weights + column);
      Pack<T, N> dx = ReadPack<N>(gradient + column);
      for (int k = 0; k < N; ++k) {
        const Real scaled = Read(dy.at[k]) * scale;
        if (!frozen) part[column + k] += scaled * Read(x.at[k]);
        const Real gain = GainOf(weight.at[k], n.zero_centered);
        Write(&dx.at[k], Read(dx.at[k]) + (scaled * gain - Read(x.at[k]) * along));
      }
      WritePack(gradient + column, dx);
    }
  }
  if (frozen || !shared) return;
  for (std::int64_t column = threadIdx.x * N; column < width; column += step) {
    for (int k = 0; k < N; ++k) own[column + k] = part[column + k];
  }
}

// Rows must begin where packs do.
template <typename T>
bool PacksFit(std::int64_t width) {
  return width % kPack<T> == 0;
}

std::int64_t Parts(std::int64_t rows) { return rows < kMostParts ? rows : kMostParts; }

}  // namespace norm_kernels

CudaResult RunOnCuda(const op::AddNorm& n, KernelScope& scope) {
  return WithElement(n.x.type(), [&]<typename T>(T*) {
    const bool packs = PacksFit<T>(n.x.width()) && Aligned(n.x.data(), n.delta.data(), n.sum.data(),
                                                           n.weight.data(), n.y.data());
    return Launch(packs ? AddNormKernel<T, kPack<T>> : AddNormKernel<T, 1>,
                  static_cast<unsigned>(n.x.rows()), kThreads, 0, scope.stream(), n);
  });
}

CudaResult RunOnCuda(const op::RecomputeRmsNorm& n, KernelScope& scope) {
  return WithElement(n.sum.type(), [&]<typename T>(T*) {
    const bool packs =
        PacksFit<T>(n.sum.width()) && Aligned(n.sum.data(), n.weight.data(), n.y.data());
    return Launch(packs ? RecomputeRmsNormKernel<T, kPack<T>> : RecomputeRmsNormKernel<T, 1>,
                  static_cast<unsigned>(n.sum.rows()), kThreads, 0, scope.stream(), n);
  });
}

CudaResult RunOnCuda(const op::NormBackward& n, KernelScope& scope) {
  const std::int64_t rows = n.sum.rows(), width = n.sum.width();
  if (rows == 0) return CudaResult::kSuccess;
  const std::int64_t per_block = (rows + Parts(rows) - 1) / Parts(rows);
  const std::int64_t blocks = (rows + per_block - 1) / per_block;
  return WithElement(n.sum.type(), [&]<typename T>(T*) {
    using Real = Wide<T>;
    Real* parts = nullptr;
    if (n.weight_gradient.array.defined()) parts = scope.Scratch<Real>(blocks * width);
    const std::size_t bytes = static_cast<std::size_t>(width) * sizeof(Real);
    const bool shared = parts != nullptr && bytes <= kSharedBytes;
    const bool packs = PacksFit<T>(width) && Aligned(n.y_gradient.data(), n.sum.data(),
                                                     n.weight.data(), n.gradient.data());
    const CudaResult result =
        Launch(packs ? NormBackwardKernel<T, kPack<T>> : NormBackwardKernel<T, 1>,
               static_cast<unsigned>(blocks), kThreads, shared ? bytes : 0, scope.stream(), n,
               per_block, parts, shared);
    if (result != CudaResult::kSuccess || parts == nullptr) return result;
    return JoinParts<Real>(parts, blocks, n.weight_gradient, scope.stream());
  });
}

template CudaResult CudaKernel<op::AddNorm>(const void*, KernelScope&);
template CudaResult CudaKernel<op::RecomputeRmsNorm>(const void*, KernelScope&);
template CudaResult CudaKernel<op::NormBackward>(const void*, KernelScope&);

}  // namespace muster::cuda
