#include "trainer/ops/attention.h"

#include <ATen/ATen.h>

#include "trainer/ops/cuda/fused_attention.h"
#include "trainer/ops/cuda/kernel_entry.h"
#include "trainer/ops/cuda/math_attention.h"

namespace muster::cuda {

CudaResult RunOnCuda(const op::Attention& a, KernelScope& scope) {
  const at::Tensor qkv = scope.TensorOf(a.qkv);
  at::Tensor out = scope.TensorOf(a.out), lse = scope.TensorOf(a.lse);
  const FusedAttention* const fused = scope.attention();
  if (fused == nullptr || !fused->Forward(qkv, a.shape, a.heads, out, lse)) {
    MathAttention(qkv, a.shape, a.heads, out, lse);
  }
  return CudaResult::kSuccess;
}

CudaResult RunOnCuda(const op::AttentionBackward& a, KernelScope& scope) {
  const at::Tensor qkv = scope.TensorOf(a.qkv), out = scope.TensorOf(a.out);
  const at::Tensor lse = scope.TensorOf(a.lse);
  const at::Tensor out_gradient = scope.TensorOf(a.out_gradient);
  at::Tensor qkv_gradient = scope.TensorOf(a.qkv_gradient);
  const FusedAttention* const fused = scope.attention();
  if (fused == nullptr ||
      !fused->Backward(qkv, out, lse, out_gradient, a.shape, a.heads, qkv_gradient)) {
    MathAttentionBackward(qkv, out, lse, out_gradient, a.shape, a.heads, qkv_gradient);
  }
  return CudaResult::kSuccess;
}

template CudaResult CudaKernel<op::Attention>(const void*, KernelScope&);
template CudaResult CudaKernel<op::AttentionBackward>(const void*, KernelScope&);

}  // namespace muster::cuda
