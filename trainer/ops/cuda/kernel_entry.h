// CudaKernel: an entry of CudaKernels' table. Only kernels' sources include it.
//
// A kernel is a function RunOnCuda(const op::OPERATOR&, KernelScope&) in namespace muster::cuda,
// which returns what the launch returns (errors of the run show later), and an instantiation of
// CudaKernel for the operator at the end of its source.
#pragma once

#include "trainer/ops/cuda/kernel_scope.h"

namespace muster::cuda {

template <typename Op>
CudaResult CudaKernel(const void* arguments, KernelScope& scope) {
  return RunOnCuda(*static_cast<const Op*>(arguments), scope);
}

}  // namespace muster::cuda
