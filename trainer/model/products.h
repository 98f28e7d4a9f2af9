// Matrix products of the compute type.
//
// Where a processor has no products of bf16 or fp16, LibTorch makes them of other instructions:
// with AVX-512 at a fifth of the speed of its fp32 products, and value by value (fp16 always, bf16
// without AVX-512) at a tenth or less. There the factors are widened to fp32 and the product is
// rounded once, as oneDNN's kernels do elsewhere. Free functions; any thread. Shape errors are
// Torch exceptions.
#pragma once

#include <ATen/core/Tensor.h>

namespace muster {

// out = a b: [N, M] of [N, K] and [K, M].
void MultiplyInto(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);

// out = beta base + alpha a b; `base` is [N, M] or a bias [M], and may be `out`. With beta 0 it is
// not read.
void MultiplyAddInto(at::Tensor& out, const at::Tensor& base, const at::Tensor& a,
                     const at::Tensor& b, double beta = 1, double alpha = 1);

// out += alpha a^T b: fp32 [M, N] of [K, M] and [K, N], which are bf16 or fp16 and whose rows are
// contiguous. Nothing is rounded to the factors' type.
void AddWideProduct(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, double alpha = 1);

// x w^T + bias: [..., M] of [..., K] and [M, K]; without a bias if that is not defined.
at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

}  // namespace muster
