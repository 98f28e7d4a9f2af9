// RMS norm of queries and keys. A warp has a group of elements that are normed together; backward,
// the groups of a run of rows that a block's warps share out.
#include "trainer/ops/qk_norm.h"

#include "trainer/ops/cuda/join_parts.cuh"
#include "trainer/ops/cuda/kernel.cuh"

namespace muster::cuda {
inline namespace qk_norm_kernels {

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

// Where a group of queries or keys begins within its row.
__device__ __forceinline__ std::int64_t BeginOf(const op::QkGroups& g, std::int64_t group) {
  return group < g.queries ? group * g.query_width
                           : g.queries * g.query_width + (group - g.queries) * g.key_width;
}

// A warp for each group of a row, and one for its values.
template <typename T>
__global__ void QkNormKernel(op::QkNorm n, op::QkGroups g) {
  const AttentionHeads h = n.heads;
  const std::int64_t normed = g.queries + g.keys;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (index >= n.qkv.rows() * (normed + 1)) return;
  const std::int64_t row = index / (normed + 1), group = index % (normed + 1);
  const std::int64_t at = row * (h.heads + 2 * h.kv_heads) * h.head_dim + BeginOf(g, group);
  const T* const x = n.qkv.data<T>() + at;
  T* const y = n.out.data<T>() + at;
  if (group == normed) {
    for (std::int64_t i = lane; i < h.kv_heads * h.head_dim; i += kWarp) y[i] = x[i];
    return;
  }
  const bool query = group < g.queries;
  const std::int64_t width = query ? g.query_width : g.key_width;
  Wide<T> squares = 0;
  for (std::int64_t i = lane; i < width; i += kWarp) squares += Read(x[i]) * Read(x[i]);
  const Wide<T> mean = WarpSum(squares) / static_cast<Wide<T>>(width);
  const Wide<T> scale = Wide<T>(1) / Root(mean + static_cast<Wide<T>>(n.eps));
  if (lane == 0) n.scale.data<Wide<T>>()[row * normed + group] = scale;
  const T* const weight = query ? n.query_weight.data<T>() : n.key_weight.data<T>();
  for (std::int64_t i = lane; i < width; i += kWarp) {
    Write(&y[i], Normed(x[i], scale, weight[i], n.zero_centered));
  }
}

// A lane's columns of its warp's part belong to it alone, so they need no barrier. Parts are
// [blocks * kWarps, width of the weight]; null: the weight is frozen.
template <typename T>
__global__ void QkNormBackwardKernel(op::QkNormBackward n, op::QkGroups g,
                                     std::int64_t rows_per_block, Wide<T>* query_parts,
                                     Wide<T>* key_parts) {
  using Real = Wide<T>;
  const AttentionHeads h = n.heads;
  const std::int64_t rows = n.qkv.rows(), normed = g.queries + g.keys;
  const std::int64_t row_width = (h.heads + 2 * h.kv_heads) * h.head_dim;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const std::int64_t own = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp;
  if (query_parts != nullptr) query_parts += own * g.query_width;
  if (key_parts != nullptr) key_parts += own * g.key_width;
  for (std::int64_t i = lane; query_parts != nullptr && i < g.query_width; i += kWarp) {
    query_parts[i] = 0;
  }
  for (std::int64_t i = lane; key_parts != nullptr && i < g.key_width; i += kWarp) key_parts[i] = 0;
  const std::int64_t begin = blockIdx.x * rows_per_block;
  const std::int64_t end = begin + rows_per_block < rows ? begin + rows_per_block : rows;
  for (std::int64_t index = begin * normed + warp; index < end * normed; index += kWarps) {
    const std::int64_t group = index % normed;
    const bool query = group < g.queries;
    const std::int64_t width = query ? g.query_width : g.key_width;
    const std::int64_t at = index / normed * row_width + BeginOf(g, group);
    const T* const x = n.qkv.data<T>() + at;
    T* const dy = n.gradient.data<T>() + at;
    const T* const weight = query ? n.query_weight.data<T>() : n.key_weight.data<T>();
    Real* const parts = query ? query_parts : key_parts;
    Real product = 0;
    for (std::int64_t i = lane; i < width; i += kWarp) {
      product += Read(dy[i]) * GainOf(weight[i], n.zero_centered) * Read(x[i]);
    }
    const Real scale = n.scale.data<Real>()[index];
    const Real along = WarpSum(product) * scale * scale * scale / static_cast<Real>(width);
    for (std::int64_t i = lane; i < width; i += kWarp) {
      const Real scaled = Read(dy[i]) * scale;
      if (parts != nullptr) parts[i] += scaled * Read(x[i]);
      Write(&dy[i], scaled * GainOf(weight[i], n.zero_centered) - Read(x[i]) * along);
    }
  }
}

std::int64_t RowsPerRun(std::int64_t rows) { return (rows + kMostRuns - 1) / kMostRuns; }

std::int64_t Runs(std::int64_t rows) {
  return rows == 0 ? 0 : (rows + RowsPerRun(rows) - 1) / RowsPerRun(rows);
}

}  // namespace qk_norm_kernels

CudaResult RunOnCuda(const op::QkNorm& n, KernelScope& scope) {
  const op::QkGroups groups = op::GroupsOf(n.heads, n.query_weight, n.key_weight);
  const std::int64_t warps = n.qkv.rows() * (groups.queries + groups.keys + 1);
  return WithElement(n.qkv.type(), [&]<typename T>(T*) {
    return Launch(QkNormKernel<T>, BlocksFor(warps, kWarps), kThreads, 0, scope.stream(), n,
                  groups);
  });
}

CudaResult RunOnCuda(const op::QkNormBackward& n, KernelScope& scope) {
  const op::QkGroups groups = op::GroupsOf(n.heads, n.query_weight, n.key_weight);
  const std::int64_t rows = n.qkv.rows(), parts = Runs(rows) * kWarps;
  return WithElement(n.qkv.type(), [&]<typename T>(T*) {
    using Real = Wide<T>;
    Real *query = nullptr, *key = nullptr;
    if (n.query_weight_gradient.array.defined()) {
      query = scope.Scratch<Real>(parts * groups.query_width);
    }
    if (n.key_weight_gradient.array.defined()) {
      key = scope.Scratch<Real>(parts * groups.key_width);
    }
    CudaResult result = Launch(QkNormBackwardKernel<T>, static_cast<unsigned>(Runs(rows)), kThreads,
                               0, scope.stream(), n, groups, RowsPerRun(rows), query, key);
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
