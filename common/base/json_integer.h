// Whole numbers in JSON of others, read strictly. Pure functions; any thread.
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include "common/base/json.h"

namespace muster {

// A whole number that T has, of a file or message of others. Throws Json::other_error for all else,
// where get() cuts off bits, and converts a fraction even where T has no such number, which is
// undefined.
template <std::integral T, typename Json>
T IntegerOf(const Json& value) {
  if (value.is_number_unsigned()) {
    if (const auto number = value.template get<std::uint64_t>(); std::in_range<T>(number))
      return static_cast<T>(number);
  } else if (value.is_number_integer()) {
    if (const auto number = value.template get<std::int64_t>(); std::in_range<T>(number))
      return static_cast<T>(number);
  }
  throw Json::other_error::create(501, "expected a whole number in range", &value);
}
template <std::integral T, typename Json>
T IntegerOr(const Json& object, const char* key, T otherwise) {
  const auto found = object.find(key);
  return found == object.end() ? otherwise : IntegerOf<T>(*found);
}

}  // namespace muster
