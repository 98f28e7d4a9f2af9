// The gated activation of experts, weight * silu(gate) * up with a weight for each row, forward and
// backward. The weight is the router's; on the activation it does what it would do on the expert's
// output.
#pragma once

#include "trainer/ops/array_checks.h"

namespace muster::op {

struct WeightedSwiGlu {
  static constexpr char kName[] = "weighted_swiglu";

  ConstArray gate_up;  // [S, 2 * inner] T: gate, then up
  ConstArray weights;  // [S] W
  Array out;           // [S, inner] T

  void Check(const ArrayChecks& check) const {
    check.Rows(out, "the weighted activation");
    check.Array(gate_up, {out.rows(), 2 * out.width()}, out.type(), "gate_up");
    check.Array(weights, {out.rows()}, WideType(out.type()), "the rows' weights");
  }
};

struct WeightedSwiGluBackward {
  static constexpr char kName[] = "weighted_swiglu_backward";

  Array gate_up;            // [S, 2 * inner] T; becomes its own gradient
  ConstArray weights;       // [S] W
  ConstArray out_gradient;  // [S, inner] T
  Array out;                // [S, inner] T, written as WeightedSwiGlu does, bit for bit
  Array weight_gradients;   // [S] W, written

  void Check(const ArrayChecks& check) const {
    WeightedSwiGlu{gate_up, weights, out}.Check(check);
    check.Array(out_gradient, out.shape(), out.type(), "the activation's gradient");
    check.Array(weight_gradients, {out.rows()}, WideType(out.type()), "the weights' gradients");
  }
};

}  // namespace muster::op
