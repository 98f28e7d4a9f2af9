#include "trainer/ops/cuda/cuda_kernels.h"

#include <c10/util/Exception.h>

#include "trainer/ops/cuda/kernel_scope.h"

namespace muster {
namespace cuda {

// kernel_entry.h
template <typename Op>
CudaResult CudaKernel(const void* arguments, KernelScope& scope);

namespace {

template <typename... Ops>
CudaResult RunNumber(OperatorList<Ops...>, std::size_t number, const void* arguments,
                     KernelScope& scope) {
  static constexpr CudaResult (*kKernels[])(const void*, KernelScope&) = {CudaKernel<Ops>...};
  return kKernels[number](arguments, scope);
}

}  // namespace
}  // namespace cuda

void CudaKernels::Run(const AnyOperator& op, at::Device device, CudaStream stream,
                      const FusedAttention* attention) {
  cuda::KernelScope scope(device, stream, documents_, attention);
  const CudaResult result = cuda::RunNumber(op::Operators(), op.number(), op.arguments(), scope);
  TORCH_CHECK(result == CudaResult::kSuccess, op.name(), ": CUDA error ", static_cast<int>(result));
}

}  // namespace muster
