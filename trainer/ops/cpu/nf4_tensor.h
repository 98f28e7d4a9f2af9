// Nf4Tensor: a tensor of weights quantised to NF4 on the host, with the bytes that bitsandbytes
// gives on one thread (trainer/ops/nf4.h has the format).
//
// Owned by the code that quantised it. Any thread, though the mean over absmax is taken with
// LibTorch set to one thread for the while. Other types than fp32, bf16 and fp16, other devices and
// tensors that are not contiguous are Torch exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trainer/ops/nf4.h"

namespace muster {

struct Nf4Tensor {
  std::int64_t count = 0;  // elements
  at::Tensor codes;        // [Nf4Bytes(count)] uint8
  at::Tensor absmax;       // [Nf4Blocks(count)] fp32; undefined where doubly quantised
  // Of double quantisation.
  at::Tensor absmax_codes;   // [Nf4Blocks(count)] uint8
  at::Tensor nested_absmax;  // [Nf4NestedBlocks(count)] fp32
  at::Tensor nested_code;    // [256] fp32
  float offset = 0;

  // Good as long as the tensors are.
  Nf4Source source() const;
};

Nf4Tensor QuantizeNf4(const at::Tensor& values, bool double_quantized);

// The same of a tensor whose parts were quantised apart: codes and absmax of all its blocks.
Nf4Tensor JoinNf4(std::int64_t count, at::Tensor codes, at::Tensor absmax, bool double_quantized);

}  // namespace muster
