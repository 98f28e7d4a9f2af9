// The sum of squares of a flat array: of a gradient's norm.
#pragma once

#include "trainer/ops/array_checks.h"

namespace muster::op {

// Added up in an order that does not depend on the number of threads.
struct SumOfSquares {
  static constexpr char kName[] = "sum_of_squares";

  const void* values = nullptr;  // [count], memory of the device
  ElementType type = ElementType::kFloat32;
  std::int64_t count = 0;
  Array sum;  // fp64, on the device: its first element += the sum

  void Check(const ArrayChecks& check) const { check.Sum(sum, "the sum of squares"); }
};

}  // namespace muster::op
