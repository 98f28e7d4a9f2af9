// Torch's names of the element types, and ours.
//
// Pure; any thread. A type that the other side lacks is a Torch exception.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include "trainer/core/element_type.h"

namespace muster {

inline ElementType ElementTypeOf(at::ScalarType type) {
  switch (type) {
    case at::kByte: return ElementType::kUint8;
    case at::kLong: return ElementType::kInt64;
    case at::kBFloat16: return ElementType::kBFloat16;
    case at::kHalf: return ElementType::kFloat16;
    case at::kFloat: return ElementType::kFloat32;
    case at::kDouble: return ElementType::kFloat64;
    default: TORCH_CHECK(false, "no kernel has elements of type ", type);
  }
}

inline at::ScalarType ScalarTypeOf(ElementType type) {
  switch (type) {
    case ElementType::kUint8: return at::kByte;
    case ElementType::kInt64: return at::kLong;
    case ElementType::kBFloat16: return at::kBFloat16;
    case ElementType::kFloat16: return at::kHalf;
    case ElementType::kFloat32: return at::kFloat;
    case ElementType::kFloat64: return at::kDouble;
  }
  TORCH_CHECK(false, "an element type out of its range");
}

// What arithmetic on elements of `type` is done in: "W" where "T" is the type.
inline at::ScalarType WideType(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace muster
