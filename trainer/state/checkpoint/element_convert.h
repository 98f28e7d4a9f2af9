// Conversion of element types when a state moves from one kind of training to another.
#pragma once

#include <cstdint>

#include "trainer/core/element_type.h"

namespace muster {

// Of floating-point types; others convert to nothing but themselves.
bool CanConvert(ElementType from, ElementType to);

// to[i] = from[i], rounded once, to nearest, ties to even. The arrays do not overlap. Pure; any
// thread.
void ConvertElements(const void* from, ElementType from_type, void* to, ElementType to_type,
                     std::int64_t count);

}  // namespace muster
