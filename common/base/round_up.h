// Up to the next multiple. Pure.
#pragma once

#include <type_traits>

namespace muster {

// Neither is negative, and `multiple` is not 0.
template <typename Number>
constexpr Number RoundUp(Number value, std::type_identity_t<Number> multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace muster
