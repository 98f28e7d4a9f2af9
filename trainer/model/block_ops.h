// The fused element-wise operations of a block as differentiable functions over tensors.
//
// Each is one pass forward and one backward (trainer/kernels/block_kernels.h) instead of a chain of
// tensor operations with a graph node and a temporary each. fp32 and bf16, contiguous or made so.
//
// Any thread. Shape errors are Torch exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace muster {

// x [..., H], weight [H].
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);

// [..., 2 * inner] -> [..., inner]: silu of the first half times the second.
at::Tensor GatedSilu(const at::Tensor& gate_up);

struct RotaryShape {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
};

struct QueryKeyValue {
  at::Tensor query;  // [B, T, heads, head_dim]
  at::Tensor key;    // [B, T, kv heads, head_dim]
  at::Tensor value;
};

// qkv [B, T, (heads + 2 * kv heads) * head_dim]; cos and sin [T, head_dim / 2] fp32.
QueryKeyValue SplitAndRotate(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                             const RotaryShape& shape);

}  // namespace muster
