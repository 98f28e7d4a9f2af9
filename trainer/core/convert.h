// Flat arrays from one element type to another, and the sum of their squares.
//
// Elements are independent, so any cut into ranges gives the same bits. Floating point types only
// (fp64, fp32, bf16, fp16).
//
// Pure loops over the caller's memory; any thread. No Torch.
#pragma once

#include <cstdint>

#include "trainer/core/element_type.h"

namespace muster {

// to[i] = from[i], or to[i] + from[i] where `add`, rounded once, to nearest, ties to even. The sum
// is taken in the wider one's Wide type. The arrays do not overlap.
void Convert(const void* from, ElementType from_type, void* to, ElementType to_type,
             std::int64_t count, bool add);

// In fp64, in a fixed number of lanes. A caller that cuts an array adds up the parts in order.
double SumOfSquares(const void* values, ElementType type, std::int64_t count);

}  // namespace muster
