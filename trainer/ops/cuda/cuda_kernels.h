// CudaKernels: the operators of a GPU, by kernels of ours and LibTorch's fused attention.
//
// CudaOps runs them on its device. A test runs them over memory of the host, where the kernels are
// emulated. The trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/core/cuda_api.h"
#include "trainer/ops/cuda/device_documents.h"
#include "trainer/ops/operators.h"

namespace muster {

class FusedAttention;

class CudaKernels {
 public:
  // Puts the operator's kernel on the stream. Without `attention` attention is plain. Throws where
  // the launch fails.
  void Run(const AnyOperator& op, at::Device device, CudaStream stream,
           const FusedAttention* attention);

 private:
  DeviceDocuments documents_;
};

}  // namespace muster
