// Sums of rows: a thread has an element.
#include "trainer/ops/sum_rows.h"

#include "trainer/ops/cuda/kernel.cuh"

namespace muster::cuda {
inline namespace sum_rows_kernels {

constexpr unsigned kThreads = 256;

template <typename T>
__global__ void SumRowsKernel(op::SumRows s, std::int64_t elements) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= elements) return;
  const std::int64_t width = s.out.width(), count = s.places.width();
  const std::int64_t row = index / width, column = index % width;
  Wide<T> sum = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    sum += Read(s.from.data<T>()[s.places.data<std::int64_t>()[row * count + k] * width + column]);
  }
  Write(s.out.data<T>() + index, sum);
}

}  // namespace sum_rows_kernels

CudaResult RunOnCuda(const op::SumRows& s, KernelScope& scope) {
  const std::int64_t elements = s.out.rows() * s.out.width();
  return WithElement(s.out.type(), [&]<typename T>(T*) {
    return Launch(SumRowsKernel<T>, BlocksFor(elements, kThreads), kThreads, 0, scope.stream(), s,
                  elements);
  });
}

template CudaResult CudaKernel<op::SumRows>(const void*, KernelScope&);

}  // namespace muster::cuda
