// RMS norm of the heads of queries and keys. A warp has a head; backward, the heads of a run of
// rows that a block's warps share out.
#include "trainer/ops/qk_norm.h"

#include "trainer/ops/cuda/join_parts.cuh"
#include "trainer/ops/cuda/kernel.cuh"

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
__global__ void QkNormKernel(op::QkNorm n) {
  const AttentionHeads h = n.heads;
  const std::int64_t all = h.heads + 2 * h.kv_heads;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (index >= n.qkv.rows() * all) return;
  const std::int64_t row = index / all, head = index % all;
  const T* const x = n.qkv.data<T>() + index * h.head_dim;
  T* const y = n.out.data<T>() + index * h.head_dim;
  if (head >= h.heads + h.kv_heads) {
    for (std::int64_t i = lane; i < h.head_dim; i += kWarp) y[i] = x[i];
    return;
  }
  Wide<T> squares = 0;
  for (std::int64_t i = lane; i < h.head_dim; i += kWarp) squares += Read(x[i]) * Read(x[i]);
  const Wide<T> mean = WarpSum(squares) / static_cast<Wide<T>>(h.head_dim);
  const Wide<T> scale = Wide<T>(1) / Root(mean + static_cast<Wide<T>>(n.eps));
  if (lane == 0) n.scale.data<Wide<T>>()[row * (h.heads + h.kv_heads) + head] = scale;
  const T* const weight = head < h.heads ? n.query_weight.data<T>() : n.key_weight.data<T>();
  for (std::int64_t i = lane; i < h.head_dim; i += kWarp) {
    Write(&y[i], Read(weight[i]) * RoundedTo<T>(Read(x[i]) * scale));
  }
}

// A lane's columns of its warp's part belong to it alone, so they need no barrier. Parts are
// [blocks * kWarps, head_dim]; null: the weight is frozen.
template <typename T>
__global__ void QkNormBackwardKernel(op::QkNormBackward n, std::int64_t rows_per_block,
                                     Wide<T>* query_parts, Wide<T>* key_parts) {
  using Real = Wide<T>;
  const AttentionHeads h = n.heads;
  const std::int64_t rows = n.qkv.rows(), normed = h.heads + h.kv_heads;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const std::int64_t own = (static_cast<std::int64_t>(blockIdx.x) * kWarps + warp) * h.head_dim;
  for (std::int64_t i = lane; i < h.head_dim; i += kWarp) {
    if (query_parts != nullptr) query_parts[own + i] = 0;
    if (key_parts != nullptr) key_parts[own + i] = 0;
  }
  const std::int64_t begin = blockIdx.x * rows_per_block;
  const std::int64_t end = begin + rows_per_block < rows ? begin + rows_per_block : rows;
  for (std::int64_t index = begin * normed + warp; index < end * normed; index += kWarps) {
    const std::int64_t row = index / normed, head = index % normed;
    const std::int64_t at = (row * (normed + h.kv_heads) + head) * h.head_dim;
    const T* const x = n.qkv.data<T>() + at;
    T* const dy = n.gradient.data<T>() + at;
    const T* const weight = head < h.heads ? n.query_weight.data<T>() : n.key_weight.data<T>();
    Real* const parts = head < h.heads ? query_parts : key_parts;
    Real product = 0;
    for (std::int64_t i = lane; i < h.head_dim; i += kWarp) {
      product += Read(dy[i]) * Read(weight[i]) * Read(x[i]);
    }
    const Real scale = n.scale.data<Real>()[index];
    const Real along = WarpSum(product) * scale * scale * scale / static_cast<Real>(h.head_dim);
    for (std::int64_t i = lane; i < h.head_dim; i += kWarp) {
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

CudaResult RunOnCuda(const op::QkNorm& n, KernelScope& scope) {
  const std::int64_t warps = n.qkv.rows() * (n.heads.heads + 2 * n.heads.kv_heads);
  return WithElement(n.qkv.type(), [&]<typename T>(T*) {
    return Launch(QkNormKernel<T>, BlocksFor(warps, kWarps), kThreads, 0, scope.stream(), n);
  });
}

CudaResult RunOnCuda(const op::QkNormBackward& n, KernelScope& scope) {
  const std::int64_t rows = n.qkv.rows(), parts = Runs(rows) * kWarps;
  return WithElement(n.qkv.type(), [&]<typename T>(T*) {
    using Real = Wide<T>;
    Real *query = nullptr, *key = nullptr;
    if (n.query_weight_gradient.array.defined()) {
      query = scope.Scratch<Real>(parts * n.heads.head_dim);
    }
    if (n.key_weight_gradient.array.defined()) {
      key = scope.Scratch<Real>(parts * n.heads.head_dim);
    }
    CudaResult result = Launch(QkNormBackwardKernel<T>, static_cast<unsigned>(Runs(rows)), kThreads,
                               0, scope.stream(), n, RowsPerRun(rows), query, key);
    if (result == CudaResult::kSuccess && query != nullptr) {
      result = JoinParts<Real>(query, parts, n.query_weight_gradient, scope.stream());
    }
    if (result == CudaResult::kSuccess && key != nullptr) {
      result = JoinParts<Real>(key, parts, n.key_weight_gradient, scope.stream());
    }
    return result;
  });
}

template CudaResult CudaKernel<op::QkNorm>(const void*, KernelScope&);
template CudaResult CudaKernel<op::QkNormBackward>(const void*, KernelScope&);

}  // namespace muster::cuda
