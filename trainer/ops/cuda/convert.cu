// Conversions of flat arrays and of rows: a thread has a run of elements.
#include "trainer/ops/convert.h"

#include "trainer/ops/cuda/convert_rows.h"
#include "trainer/ops/cuda/flat.cuh"

namespace muster::cuda {
inline namespace convert_kernels {

template <typename Real, int N>
__device__ void ConvertRun(const ConvertRows& c, std::int64_t from, std::int64_t to) {
  Real values[N];
  ReadRun<N>(c.from, c.from_type, from, values);
  if (c.add) {
    Real before[N];
    ReadRun<N>(c.to, c.to_type, to, before);
    for (int k = 0; k < N; ++k) values[k] += before[k];
  }
  WriteRun<N>(c.to, c.to_type, to, values);
}

template <typename Real, int N>
__global__ void ConvertKernel(ConvertRows c, std::int64_t runs_per_row) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= runs_per_row * c.rows) return;
  const std::int64_t row = index / runs_per_row;
  const std::int64_t column = index % runs_per_row * N;
  const std::int64_t from = row * c.from_stride + column;
  const std::int64_t to = row * c.to_stride + column;
  if (column + N <= c.columns) {
    ConvertRun<Real, N>(c, from, to);
  } else {
    for (std::int64_t k = 0; k < c.columns - column; ++k) ConvertRun<Real, 1>(c, from + k, to + k);
  }
}

template <typename Real>
CudaResult LaunchConvert(const ConvertRows& c, CudaStream stream) {
  const bool rows_begin_aligned =
      c.rows == 1 || (c.from_stride % kRun == 0 && c.to_stride % kRun == 0);
  if (rows_begin_aligned && Aligned(c.from, c.to)) {
    const std::int64_t runs = (c.columns + kRun - 1) / kRun;
    return Launch(ConvertKernel<Real, kRun>, BlocksFor(runs * c.rows, kFlatThreads), kFlatThreads,
                  0, stream, c, runs);
  }
  return Launch(ConvertKernel<Real, 1>, BlocksFor(c.columns * c.rows, kFlatThreads), kFlatThreads,
                0, stream, c, c.columns);
}

}  // namespace convert_kernels

CudaResult ConvertOnStream(const ConvertRows& c, CudaStream stream) {
  if (!IsFloating(c.from_type) || !IsFloating(c.to_type)) return kInvalidValue;
  const bool wide = c.from_type == ElementType::kFloat64 || c.to_type == ElementType::kFloat64;
  return wide ? LaunchConvert<double>(c, stream) : LaunchConvert<float>(c, stream);
}

CudaResult RunOnCuda(const op::Convert& c, KernelScope& scope) {
  return ConvertOnStream({.from = c.from,
                          .from_type = c.from_type,
                          .to = c.to,
                          .to_type = c.to_type,
                          .rows = 1,
                          .columns = c.count,
                          .add = c.add},
                         scope.stream());
}

template CudaResult CudaKernel<op::Convert>(const void*, KernelScope&);

}  // namespace muster::cuda
