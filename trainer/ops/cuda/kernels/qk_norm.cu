// RMS norm of the heads of queries and keys. A warp has a head; backward, the heads of a run of
// rows that a block's warps share out.
#include "trainer/ops/cuda/kernels/join_parts.cuh"
#include "trainer/ops/cuda/kernels/tools.cuh"

namespace muster::cuda {
namespace {

constexpr unsigned kWarps = 8;
constexpr unsigned kThreads = kWarps * kWarp;
// Runs of rows whose parts of the weights' gradients are kept apart.
constexpr std::int64_t kMostRuns = 256;

// The same in every lane.
template <typename Value>
__device__ __forceinline__ Value WarpSum(Value value) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, step);
  }
  return value;
}

template <typename T>
struct Heads {
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  Wide<T> eps;
  const T* qkv;
  const T* query_weight;
  const T* key_weight;
  Wide<T>* scale;
  T* out;
};

template <typename T>
__global__ void QkNormKernel(Heads<T> n) {
  const std::int64_t all = n.heads + 2 * n.kv_heads;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (index >= n.rows * all) return;
  const std::int64_t row = index / all, head = index % all;
  const T* const x = n.qkv + index * n.head_dim;
  T* const y = n.out + index * n.head_dim;
  if (head >= n.heads + n.kv_heads) {
    for (std::int64_t i = lane; i < n.head_dim; i += kWarp) y[i] = x[i];
    return;
  }
  Wide<T> squares = 0;
  for (std::int64_t i = lane; i < n.head_dim; i += kWarp) squares += Read(x[i]) * Read(x[i]);
  const Wide<T> mean = WarpSum(squares) / static_cast<Wide<T>>(n.head_dim);
  const Wide<T> scale = Wide<T>(1) / Root(mean + n.eps);
  if (lane == 0) n.scale[row * (n.heads + n.kv_heads) + head] = scale;
  const T* const weight = head < n.heads ? n.query_weight : n.key_weight;
  for (std::int64_t i = lane; i < n.head_dim; i += kWarp) {
    Write(&y[i], Read(weight[i]) * RoundedTo<T>(Read(x[i]) * scale));
  }
}

template <typename T>
struct HeadRun {
  std::int64_t rows;
  std::int64_t rows_per_block;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  const T* qkv;
  const T* query_weight;
  const T* key_weight;
  const Wide<T>* scale;
  T* gradient;
  Wide<T>* query_parts;  // [blocks * kWarps, head_dim]; null: the weight is frozen
  Wide<T>* key_parts;
};

// A lane's columns of its warp's part belong to it alone, so they need no barrier.
template <typename T>
__global__ void QkNormBackwardKernel(HeadRun<T> n) {
  using Real = Wide<T>;
  const std::int64_t normed = n.heads + n.kv_heads;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const std::int64_t own = (static_cast<std::int64_t>(blockIdx.x) * kWarps + warp) * n.head_dim;
  for (std::int64_t i = lane; i < n.head_dim; i += kWarp) {
    if (n.query_parts != nullptr) n.query_parts[own + i] = 0;
    if (n.key_parts != nullptr) n.key_parts[own + i] = 0;
  }
  const std::int64_t begin = blockIdx.x * n.rows_per_block;
  const std::int64_t end = begin + n.rows_per_block < n.rows ? begin + n.rows_per_block : n.rows;
  for (std::int64_t index = begin * normed + warp; index < end * normed; index += kWarps) {
    const std::int64_t row = index / normed, head = index % normed;
    const std::int64_t at = (row * (normed + n.kv_heads) + head) * n.head_dim;
    const T* const x = n.qkv + at;
    T* const dy = n.gradient + at;
    const T* const weight = head < n.heads ? n.query_weight : n.key_weight;
    Real* const parts = head < n.heads ? n.query_parts : n.key_parts;
    Real product = 0;
    for (std::int64_t i = lane; i < n.head_dim; i += kWarp) {
      product += Read(dy[i]) * Read(weight[i]) * Read(x[i]);
    }
    const Real scale = n.scale[index];
    const Real along = WarpSum(product) * scale * scale * scale / static_cast<Real>(n.head_dim);
    for (std::int64_t i = lane; i < n.head_dim; i += kWarp) {
      const Real scaled = Read(dy[i]) * scale;
      if (parts != nullptr) parts[own + i] += scaled * Read(x[i]);
      Write(&dy[i], scaled * Read(weight[i]) - Read(x[i]) * along);
    }
  }
}

std::int64_t RowsPerRun(std::int64_t rows) { return (rows + kMostRuns - 1) / kMostRuns; }

std::int64_t Runs(std::int64_t rows) {
  return rows == 0 ? 0 : (rows + RowsPerRun(rows) - 1) / RowsPerRun(rows);
}

}  // namespace

CudaResult QkNorm(const QkNorms& n, CudaStream stream) {
  return WithElement(n.type, [&]<typename T>(T*) {
    const Heads<T> arguments{n.rows,
                             n.heads,
                             n.kv_heads,
                             n.head_dim,
                             static_cast<Wide<T>>(n.eps),
                             static_cast<const T*>(n.qkv),
                             static_cast<const T*>(n.query_weight),
                             static_cast<const T*>(n.key_weight),
                             static_cast<Wide<T>*>(n.scale),
                             static_cast<T*>(n.out)};
    const std::int64_t warps = n.rows * (n.heads + 2 * n.kv_heads);
    return Launch(QkNormKernel<T>, BlocksFor(warps, kWarps), kThreads, 0, stream, arguments);
  });
}

std::int64_t QkNormParts(std::int64_t rows) { return Runs(rows) * kWarps; }

CudaResult QkNormBackward(const QkNormGradient& n, CudaStream stream) {
  return WithElement(n.type, [&]<typename T>(T*) {
    using Real = Wide<T>;
    const HeadRun<T> arguments{n.rows,
                               RowsPerRun(n.rows),
                               n.heads,
                               n.kv_heads,
                               n.head_dim,
                               static_cast<const T*>(n.qkv),
                               static_cast<const T*>(n.query_weight),
                               static_cast<const T*>(n.key_weight),
                               static_cast<const Real*>(n.scale),
                               static_cast<T*>(n.gradient),
                               static_cast<Real*>(n.query.parts),
                               static_cast<Real*>(n.key.parts)};
    CudaResult result = Launch(QkNormBackwardKernel<T>, static_cast<unsigned>(Runs(n.rows)),
                               kThreads, 0, stream, arguments);
    for (const HeadWeightGradient& weight : {n.query, n.key}) {
      if (result != CudaResult::kSuccess) return result;
      if (weight.parts == nullptr) continue;
      result = JoinParts(static_cast<const Real*>(weight.parts), QkNormParts(n.rows), n.head_dim,
                         weight.gradient, weight.type, weight.add, stream);
    }
    return result;
  });
}

}  // namespace muster::cuda
