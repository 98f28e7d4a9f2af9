// Cross entropy over a vocabulary, with its gradient in place of the logits.
#pragma once

#include "trainer/ops/array_checks.h"

namespace muster::op {

// A CPU refuses a label beyond the vocabulary; a GPU would report it too late, and makes its row
// and the loss NaN.
struct CrossEntropy {
  static constexpr char kName[] = "cross_entropy";

  Array logits;       // [n, V] T, become the gradient of scale * sum of cross entropies
  ConstArray labels;  // [n] int64; a negative one counts nothing
  double scale = 1;
  Array loss;  // fp64, on the device: its first element += the unscaled sum
  // Where it is not 0, logits count as cap * tanh(logit / cap), and the gradient is that of the
  // logit.
  double cap = 0;

  void Check(const ArrayChecks& check) const {
    check.Rows(logits, "the array of logits");
    check.Array(labels, {logits.rows()}, ElementType::kInt64, "the array of labels");
    check.Sum(loss, "the loss");
    if (cap < 0) Refuse("a cap of " + std::to_string(cap) + " on the logits");
  }
};

}  // namespace muster::op
