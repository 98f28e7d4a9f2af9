// LinearLayer: a linear layer in inference.
//
// Any thread. No work space of its own. Shape errors are Torch exceptions.
#pragma once

#include <ATen/core/Tensor.h>

namespace muster {

// x [..., in], weight [out, in], bias [out] or undefined -> x weight^T + bias, [..., out]. A single
// position on the CPU, where no graph is recorded, goes past LibTorch's matrix products, which read
// the weights at a fraction of what memory gives.
at::Tensor LinearLayer(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

}  // namespace muster
