// The sum of squares of a flat array, by blocks, in a fixed order.
#include "trainer/ops/sum_of_squares.h"

#include <algorithm>

#include "trainer/ops/cuda/flat.cuh"

namespace muster::cuda {
inline namespace sum_of_squares_kernels {

template <int N>
__global__ void SquaresKernel(const void* values, ElementType type, std::int64_t count,
                              double* parts) {
  double own = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * N;
  std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  for (; at + N <= count; at += step) {
    double run[N];
    ReadRun<N>(values, type, at, run);
    for (int k = 0; k < N; ++k) own += run[k] * run[k];
  }
  for (; at < count; ++at) {
    double one = 0;
    ReadRun<1>(values, type, at, &one);
    own += one * one;
  }
  const double all = BlockSum(own);
  if (threadIdx.x == 0) parts[blockIdx.x] = all;
}

__global__ void AddSquaresKernel(const double* parts, std::int64_t count, double* sum) {
  double own = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) own += parts[i];
  const double all = BlockSum(own);
  if (threadIdx.x == 0) *sum += all;
}

}  // namespace sum_of_squares_kernels

CudaResult RunOnCuda(const op::SumOfSquares& s, KernelScope& scope) {
  if (!IsFloating(s.type)) return kInvalidValue;
  // Enough to fill every GPU; each is added up in a fixed order, as are the parts.
  const std::int64_t blocks =
      std::clamp<std::int64_t>(BlocksFor(s.count, kFlatThreads * kRun), 1, 1024);
  double* const parts = scope.Scratch<double>(blocks);
  const CudaResult result = Launch(Aligned(s.values) ? SquaresKernel<kRun> : SquaresKernel<1>,
                                   static_cast<unsigned>(blocks), kFlatThreads, 0, scope.stream(),
                                   s.values, s.type, s.count, parts);
  if (result != CudaResult::kSuccess) return result;
  return Launch(AddSquaresKernel, 1, kFlatThreads, 0, scope.stream(), parts, blocks,
                s.sum.data<double>());
}

template CudaResult CudaKernel<op::SumOfSquares>(const void*, KernelScope&);

}  // namespace muster::cuda
