// The gated activation of a feed-forward layer with GELU in its approximation by tanh
// (transformers' gelu_pytorch_tanh), gelu(gate) * up, forward and backward.
#pragma once

#include "trainer/ops/array_checks.h"

namespace muster::op {

struct GeGlu {
  static constexpr char kName[] = "geglu";

  ConstArray gate_up;  // [N, 2 * inner] T: gate, then up
  Array out;           // [N, inner] T

  void Check(const ArrayChecks& check) const {
    check.Rows(out, "the gated activation");
    check.Array(gate_up, {out.rows(), 2 * out.width()}, out.type(), "gate_up");
  }
};

struct GeGluBackward {
  static constexpr char kName[] = "geglu_backward";

  Array gate_up;            // [N, 2 * inner] T; becomes its own gradient
  ConstArray out_gradient;  // [N, inner] T
  Array out;                // [N, inner] T, written as GeGlu does, bit for bit

  void Check(const ArrayChecks& check) const {
    GeGlu{gate_up, out}.Check(check);
    check.Array(out_gradient, out.shape(), out.type(), "the activation's gradient");
  }
};

// gelu(x) = x * sigmoid(2 * kGeluScale * (x + kGeluCube * x^3)), which is 0.5 * x * (1 + tanh(half
// of that)) without its cancellation. kGeluScale is the root of 2 / pi.
inline constexpr double kGeluScale = 0.79788456080286535588;
inline constexpr double kGeluCube = 0.044715;

}  // namespace muster::op
