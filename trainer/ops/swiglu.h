// The gated activation of a feed-forward layer, silu(gate) * up, forward and backward.
#pragma once

#include "trainer/ops/array_checks.h"

namespace muster::op {

struct SwiGlu {
  static constexpr char kName[] = "swiglu";

  ConstArray gate_up;  // [N, 2 * inner] T: gate, then up
  Array out;           // [N, inner] T

  void Check(const ArrayChecks& check) const {
    check.Rows(out, "the gated activation");
    check.Array(gate_up, {out.rows(), 2 * out.width()}, out.type(), "gate_up");
  }
};

struct SwiGluBackward {
  static constexpr char kName[] = "swiglu_backward";

  Array gate_up;            // [N, 2 * inner] T; becomes its own gradient
  ConstArray out_gradient;  // [N, inner] T
  Array out;                // [N, inner] T, written as SwiGlu does, bit for bit

  void Check(const ArrayChecks& check) const {
    SwiGlu{gate_up, out}.Check(check);
    check.Array(out_gradient, out.shape(), out.type(), "the activation's gradient");
  }
};

}  // namespace muster::op
