// Rows of an array added up in groups: what the experts of each token have made of it.
#pragma once

#include "trainer/ops/array_checks.h"

namespace muster::op {

// out[n] = from[places[n, 0]] + ... + from[places[n, K - 1]], in this order. Places are rows of
// `from`, which no kernel checks.
struct SumRows {
  static constexpr char kName[] = "sum_rows";

  ConstArray from;    // [S, H] T
  ConstArray places;  // [N, K] int64
  Array out;          // [N, H] T

  void Check(const ArrayChecks& check) const {
    check.Rows(out, "the sums of rows");
    check.Rows(from, "the rows");
    check.Array(from, {from.rows(), out.width()}, out.type(), "the array of rows");
    check.Array(places, {out.rows(), places.width()}, ElementType::kInt64, "the array of places");
  }
};

}  // namespace muster::op
