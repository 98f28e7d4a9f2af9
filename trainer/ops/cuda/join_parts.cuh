// The sum over parts of a weight's gradient that blocks have added up apart.
#pragma once

#include "trainer/ops/cuda/kernel.cuh"

namespace muster::cuda {

// A thread has a column; the parts are added in order.
template <typename Real, typename Out>
__global__ void JoinPartsKernel(const Real* parts, std::int64_t count, std::int64_t width, Out* to,
                                bool add) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= width) return;
  Real sum = 0;
  for (std::int64_t part = 0; part < count; ++part) sum += parts[part * width + column];
  if (add) sum += Read(to[column]);
  Write(&to[column], static_cast<Wide<Out>>(sum));
}

// target = or += the parts [count, width].
template <typename Real>
CudaResult JoinParts(const Real* parts, std::int64_t count, const GradientArray& target,
                     CudaStream stream) {
  constexpr unsigned kThreads = 256;
  const std::int64_t width = target.array.rows();
  return WithElement(target.array.type(), [&]<typename Out>(Out*) {
    return Launch(JoinPartsKernel<Real, Out>, BlocksFor(width, kThreads), kThreads, 0, stream,
                  parts, count, width, target.array.data<Out>(), target.add);
  });
}

}  // namespace muster::cuda
