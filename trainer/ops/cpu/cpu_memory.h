// Long-lived host memory as tensors.
//
// Pages come zeroed from the operating system when they are first touched, so what is never touched
// (padding) costs nothing. The tensor owns the memory; the last reference gives it back.
//
// Any thread. Throws a Torch exception where there is no memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace muster {

// uint8, aligned to pages.
at::Tensor MapZeroed(std::size_t bytes);

}  // namespace muster
