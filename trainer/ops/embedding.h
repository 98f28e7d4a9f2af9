// The gradient of an embedding table.
#pragma once

#include "trainer/ops/array_checks.h"

namespace muster::op {

// table_gradient[ids[i]] (+)= gradient[i], repeated ids added up in W and in order. Without `add`
// every other row becomes zero. A CPU refuses ids outside of the table; a GPU passes over them.
struct EmbeddingBackward {
  static constexpr char kName[] = "embedding_backward";

  ConstArray gradient;           // [N, H] T
  ConstArray ids;                // [N] int64
  GradientArray table_gradient;  // [V, H], is there

  void Check(const ArrayChecks& check) const {
    check.Rows(gradient, "the gradient of the embedding");
    const ConstArray& table = table_gradient.array;
    check.Rows(table, "the table's gradient");
    check.Array(ids, {gradient.rows()}, ElementType::kInt64, "the array of ids");
    check.Array(table, {table.rows(), gradient.width()}, table.type(), "the table's gradient");
  }
};

}  // namespace muster::op
