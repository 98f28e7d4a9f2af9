// Causal attention out of matrix products and element-wise operations of ATen.
//
// For what the fused kernels do not take: fp32 and fp64, unusual head widths, and capped scores.
// Some queries of one document and key head at a time, so that the matrix of scores stays small
// (op::MathAttentionBytes). Works on every device of ATen's; arguments are those of op::Attention.
// The trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/ops/batch_shape.h"

namespace muster {

void MathAttention(const at::Tensor& qkv, const BatchShape& shape, const AttentionHeads& heads,
                   at::Tensor& out, at::Tensor& lse);
void MathAttentionBackward(const at::Tensor& qkv, const at::Tensor& out, const at::Tensor& lse,
                           const at::Tensor& out_gradient, const BatchShape& shape,
                           const AttentionHeads& heads, at::Tensor& qkv_gradient);

}  // namespace muster
