// Conversion of element types when a state moves from one kind of training to another.
#pragma once

#include <cstdint>

#include "trainer/core/shard_array.h"

namespace muster {

// Of floating-point types; others convert to nothing but themselves.
bool CanConvert(ElementType from, ElementType to);

// to[i] = from[i], rounded once, to nearest, ties to even. The arrays do not overlap. Pure; any
// thread.
void ConvertElements(const void* from, ElementType from_type, void* to, ElementType to_type,
                     std::int64_t count);

// The same into `array`, from element `at` of it on, which lies in `memory`.
void PutElements(const void* from, ElementType from_type, std::int64_t count,
                 const ShardArray& array, std::int64_t at, const ArrayMemory& memory);

}  // namespace muster
