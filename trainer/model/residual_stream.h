// ResidualStream: the hidden states between blocks, as a sum that is not added up yet.
#pragma once

#include <ATen/core/Tensor.h>

namespace muster {

// sum + delta; the next norm adds them in its own pass (op::AddNorm). delta may be
// undefined.
struct ResidualStream {
  at::Tensor sum;    // [N, H]
  at::Tensor delta;  // [N, H]
};

}  // namespace muster
