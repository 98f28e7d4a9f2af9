// RMS norm with the residual addition before it. A block has a row; backward, a run of rows.
#include "trainer/ops/cuda/kernels/join_parts.cuh"
#include "trainer/ops/cuda/kernels/tools.cuh"

namespace muster::cuda {
namespace {

constexpr unsigned kThreads = 256;
// Runs of rows whose parts of the weight's gradient are kept apart.
constexpr std::int64_t kMostParts = 256;
// Parts stay in shared memory up to here.
constexpr std::size_t kSharedBytes = 48 * 1024;

template <typename T, int N>
struct NormRow {
  std::int64_t width;
  Wide<T> eps;
  const T* x;
  const T* delta;
  T* sum;
  const T* weight;
  Wide<T>* scale;
  T* y;
};

template <typename T, int N>
__device__ void ApplyNorm(const NormRow<T, N>& n, std::int64_t at, std::int64_t column,
                          Wide<T> scale) {
  const Pack<T, N> sum = ReadPack<N>(n.sum + at);
  const Pack<T, N> weight = ReadPack<N>(n.weight + column);
  Pack<T, N> y;
  for (int k = 0; k < N; ++k) {
    Write(&y.at[k], Read(weight.at[k]) * RoundedTo<T>(Read(sum.at[k]) * scale));
  }
  WritePack(n.y + at, y);
}

template <typename T, int N>
__global__ void AddNormKernel(NormRow<T, N> n) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
  Wide<T> squares = 0;
  for (std::int64_t column = threadIdx.x * N; column < n.width; column += step) {
    const std::int64_t at = row * n.width + column;
    Pack<T, N> sum = ReadPack<N>(n.x + at);
    if (n.delta != nullptr) {
      const Pack<T, N> delta = ReadPack<N>(n.delta + at);
      for (int k = 0; k < N; ++k) Write(&sum.at[k], Read(sum.at[k]) + Read(delta.at[k]));
    }
    for (int k = 0; k < N; ++k) squares += Read(sum.at[k]) * Read(sum.at[k]);
    WritePack(n.sum + at, sum);
  }
  const Wide<T> mean = BlockSum(squares) / static_cast<Wide<T>>(n.width);
  const Wide<T> scale = Wide<T>(1) / Root(mean + n.eps);
  if (threadIdx.x == 0) n.scale[row] = scale;
  for (std::int64_t column = threadIdx.x * N; column < n.width; column += step) {
    ApplyNorm(n, row * n.width + column, column, scale);
  }
}

template <typename T, int N>
__global__ void RecomputeRmsNormKernel(NormRow<T, N> n) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
  for (std::int64_t column = threadIdx.x * N; column < n.width; column += step) {
    ApplyNorm(n, row * n.width + column, column, n.scale[row]);
  }
}

template <typename T, int N>
struct NormRun {
  std::int64_t rows;
  std::int64_t width;
  std::int64_t rows_per_block;
  const T* y_gradient;
  const T* sum;
  const T* weight;
  const Wide<T>* scale;
  T* gradient;
  Wide<T>* parts;  // [blocks, width]; null: the weight is frozen
  bool shared;     // the block's part fits into shared memory
};

// A column belongs to one thread, so its part of the weight's gradient needs no barrier.
template <typename T, int N>
__global__ void NormBackwardKernel(NormRun<T, N> n) {
  using Real = Wide<T>;
#if defined(__CUDACC__)
  extern __shared__ double dynamic_shared[];
#else
  double* const dynamic_shared = static_cast<double*>(emulation::DynamicShared());
#endif
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
  const bool frozen = n.parts == nullptr;
  Real* const own = n.parts + (frozen ? 0 : blockIdx.x * n.width);
  Real* const part = n.shared ? reinterpret_cast<Real*>(dynamic_shared) : own;
  for (std::int64_t column = threadIdx.x * N; !frozen && column < n.width; column += step) {
    for (int k = 0; k < N; ++k) part[column + k] = 0;
  }
  const std::int64_t begin = blockIdx.x * n.rows_per_block;
  const std::int64_t end = begin + n.rows_per_block < n.rows ? begin + n.rows_per_block : n.rows;
  for (std::int64_t row = begin; row < end; ++row) {
    Real product = 0;
    for (std::int64_t column = threadIdx.x * N; column < n.width; column += step) {
      const Pack<T, N> x = ReadPack<N>(n.sum + row * n.width + column);
      const Pack<T, N> dy = ReadPack<N>(n.y_gradient + row * n.width + column);
      const Pack<T, N> weight = ReadPack<N>(n.weight + column);
      for (int k = 0; k < N; ++k) product += Read(dy.at[k]) * Read(weight.at[k]) * Read(x.at[k]);
    }
    const Real scale = n.scale[row];
    const Real along = BlockSum(product) * scale * scale * scale / static_cast<Real>(n.width);
    for (std::int64_t column = threadIdx.x * N; column < n.width; column += step) {
      const std::int64_t at = row * n.width + column;
      const Pack<T, N> x = ReadPack<N>(n.sum + at);
      const Pack<T, N> dy = ReadPack<N>(n.y_gradient + at);
      const Pack<T, N> weight = ReadPack<N>(n.weight + column);
      Pack<T, N> dx = ReadPack<N>(n.gradient + at);
      for (int k = 0; k < N; ++k) {
        const Real scaled = Read(dy.at[k]) * scale;
        if (!frozen) part[column + k] += scaled * Read(x.at[k]);
        Write(&dx.at[k], Read(dx.at[k]) + (scaled * Read(weight.at[k]) - Read(x.at[k]) * along));
      }
      WritePack(n.gradient + at, dx);
    }
  }
  if (frozen || !n.shared) return;
  for (std::int64_t column = threadIdx.x * N; column < n.width; column += step) {
    for (int k = 0; k < N; ++k) own[column + k] = part[column + k];
  }
}

template <typename T, int N>
NormRow<T, N> RowOf(const Norm& n) {
  return {n.width,
          static_cast<Wide<T>>(n.eps),
          static_cast<const T*>(n.x),
          static_cast<const T*>(n.delta),
          static_cast<T*>(n.sum),
          static_cast<const T*>(n.weight),
          static_cast<Wide<T>*>(n.scale),
          static_cast<T*>(n.y)};
}

// Rows must begin where packs do.
template <typename T>
bool PacksFit(std::int64_t width) {
  return width % kPack<T> == 0;
}

}  // namespace

CudaResult AddNorm(const Norm& n, CudaStream stream) {
  return WithElement(n.type, [&]<typename T>(T*) {
    const auto rows = static_cast<unsigned>(n.rows);
    if (PacksFit<T>(n.width) && Aligned(n.x, n.delta, n.sum, n.weight, n.y)) {
      return Launch(AddNormKernel<T, kPack<T>>, rows, kThreads, 0, stream, RowOf<T, kPack<T>>(n));
    }
    return Launch(AddNormKernel<T, 1>, rows, kThreads, 0, stream, RowOf<T, 1>(n));
  });
}

CudaResult RecomputeRmsNorm(const Norm& n, CudaStream stream) {
  return WithElement(n.type, [&]<typename T>(T*) {
    const auto rows = static_cast<unsigned>(n.rows);
    if (PacksFit<T>(n.width) && Aligned(n.sum, n.weight, n.y)) {
      return Launch(RecomputeRmsNormKernel<T, kPack<T>>, rows, kThreads, 0, stream,
                    RowOf<T, kPack<T>>(n));
    }
    return Launch(RecomputeRmsNormKernel<T, 1>, rows, kThreads, 0, stream, RowOf<T, 1>(n));
  });
}

std::int64_t NormParts(std::int64_t rows) { return rows < kMostParts ? rows : kMostParts; }

CudaResult NormBackward(const NormGradient& n, CudaStream stream) {
  if (n.rows == 0) return CudaResult::kSuccess;
  const std::int64_t per_block = (n.rows + NormParts(n.rows) - 1) / NormParts(n.rows);
  const std::int64_t blocks = (n.rows + per_block - 1) / per_block;
  return WithElement(n.type, [&]<typename T>(T*) {
    using Real = Wide<T>;
    const std::size_t bytes = static_cast<std::size_t>(n.width) * sizeof(Real);
    const bool shared = n.parts != nullptr && bytes <= kSharedBytes;
    const auto run = [&]<int N>(std::integral_constant<int, N>) {
      const NormRun<T, N> arguments{n.rows,
                                    n.width,
                                    per_block,
                                    static_cast<const T*>(n.y_gradient),
                                    static_cast<const T*>(n.sum),
                                    static_cast<const T*>(n.weight),
                                    static_cast<const Real*>(n.scale),
                                    static_cast<T*>(n.gradient),
                                    static_cast<Real*>(n.parts),
                                    shared};
      return Launch(NormBackwardKernel<T, N>, static_cast<unsigned>(blocks), kThreads,
                    shared ? bytes : 0, stream, arguments);
    };
    const bool packs = PacksFit<T>(n.width) && Aligned(n.y_gradient, n.sum, n.weight, n.gradient);
    const CudaResult result = packs ? run(std::integral_constant<int, kPack<T>>())
                                    : run(std::integral_constant<int, 1>());
    if (result != CudaResult::kSuccess || n.parts == nullptr) return result;
    return JoinParts(static_cast<const Real*>(n.parts), blocks, n.width, n.weight_gradient,
                     n.weight_gradient_type, n.add, stream);
  });
}

}  // namespace muster::cuda
