// RMS norm of whole rows, forward with the residual addition before it, and backward.
//
// Rounding is Hugging Face's: the sum is rounded to the element type, the normed value once before
// and once after its weight. A zero-centered weight w multiplies by 1 + w, in W and with one
// rounding behind it (Gemma).
#pragma once

#include "trainer/ops/array_checks.h"

namespace muster::op {

// y from what AddNorm left, equal bit for bit.
struct RecomputeRmsNorm {
  static constexpr char kName[] = "recompute_rms_norm";

  ConstArray sum;              // [N, H] T
  ConstArray weight;           // [H] T
  ConstArray scale;            // [N] W
  Array y;                     // [N, H] T
  bool zero_centered = false;  // the weight

  void Check(const ArrayChecks& check) const {
    check.Rows(sum, "the sum");
    check.Array(weight, {sum.width()}, sum.type(), "the norm's weight");
    check.Array(scale, {sum.rows()}, WideType(sum.type()), "the norm's scale");
    check.Array(y, sum.shape(), sum.type(), "the norm's output");
  }
};

// sum = x + delta, y = sum / rms(sum) * weight.
struct AddNorm {
  static constexpr char kName[] = "add_norm";

  ConstArray x;       // [N, H] T
  ConstArray delta;   // the same, or not there: nothing is added
  ConstArray weight;  // [H] T
  double eps = 0;
  Array sum;                   // [N, H] T; may be x
  Array y;                     // [N, H] T
  Array scale;                 // [N] W: 1 / rms of each row
  bool zero_centered = false;  // the weight

  void Check(const ArrayChecks& check) const {
    check.Rows(x, "x");
    if (delta.defined()) check.Array(delta, x.shape(), x.type(), "delta");
    check.Array(sum, x.shape(), x.type(), "the sum");
    RecomputeRmsNorm{sum, weight, scale, y}.Check(check);
  }
};

struct NormBackward {
  static constexpr char kName[] = "norm_backward";

  ConstArray y_gradient;          // [N, H] T
  ConstArray sum;                 // [N, H] T
  ConstArray weight;              // [H] T
  ConstArray scale;               // [N] W
  Array gradient;                 // [N, H] T, of the sum: the norm's part is added
  GradientArray weight_gradient;  // [H]
  bool zero_centered = false;     // the weight

  void Check(const ArrayChecks& check) const {
    check.Rows(sum, "the sum");
    check.Array(y_gradient, sum.shape(), sum.type(), "the gradient of the norm's output");
    check.Array(weight, {sum.width()}, sum.type(), "the norm's weight");
    check.Array(scale, {sum.rows()}, WideType(sum.type()), "the norm's scale");
    check.Array(gradient, sum.shape(), sum.type(), "the gradient");
    check.Gradient(weight_gradient, sum.width(), "the gradient of the norm's weight");
  }
};

}  // namespace muster::op
