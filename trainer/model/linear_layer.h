// LinearLayer: a linear layer in inference.
//
// Any thread. No work space of its own. Shape errors are Torch exceptions.
#pragma once

#include <ATen/core/Tensor.h>

namespace muster {

// x [..., in], weight [out, in], bias [out] or undefined -> x weight^T + bias, [..., out]. A single
// position on the CPU, where no graph is recorded, and up to 16 where it has AVX-512 (bf16: but no
// AMX), go past LibTorch's matrix products, which read the weights at a fraction of what memory
// gives. What a position gets does not depend on those beside it then.
at::Tensor LinearLayer(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

}  // namespace muster
