// Element-wise reduction of raw memory: the arithmetic of the collectives, without any transport.
//
// Pure functions. Every element is combined by one operation of its own, so the result does not
// depend on vector width or chunk borders, only on the order in which callers combine ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/distributed/communicator.h"

namespace muster {

// out[i] = a[i] op b[i]. `out` may be `a` or `b`. kBFloat16 is widened, combined and rounded to
// nearest even; sums over several ranks should stay in fp32 instead (WidenBFloat16).
void Reduce(const void* a, const void* b, void* out, std::size_t count, ElementType type,
            ReduceOp op);

void WidenBFloat16(const std::uint16_t* in, float* out, std::size_t count);
// Rounds to nearest even; NaN stays NaN.
void NarrowToBFloat16(const float* in, std::uint16_t* out, std::size_t count);

}  // namespace muster
