// Flat arrays from one element type to another.
#pragma once

#include "trainer/ops/array_checks.h"

namespace muster::op {

// to[i] = from[i], or += where `add`; to nearest, ties to even.
struct Convert {
  static constexpr char kName[] = "convert";

  const void* from = nullptr;  // [count], memory of the device, as is `to`
  ElementType from_type = ElementType::kFloat32;
  void* to = nullptr;
  ElementType to_type = ElementType::kFloat32;
  std::int64_t count = 0;
  bool add = false;

  void Check(const ArrayChecks&) const {}
};

}  // namespace muster::op
