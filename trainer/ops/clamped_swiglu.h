// The bounded gated activation of experts, weight * (up + 1) * gate * sigmoid(alpha * gate) with
// gate at most `limit` and up between -limit and limit, and a weight for each row
// (weighted_swiglu.h), forward and backward. Source: gpt-oss, GptOssExperts of transformers.
#pragma once

#include "trainer/core/model_config.h"
#include "trainer/ops/array_checks.h"

namespace muster::op {

struct ClampedSwiGlu {
  static constexpr char kName[] = "clamped_swiglu";

  ConstArray gate_up;  // [S, 2 * inner] T: gate and up in turns
  ConstArray weights;  // [S] W
  ClampedSwiGluForm form;
  Array out;  // [S, inner] T

  void Check(const ArrayChecks& check) const {
    check.Rows(out, "the bounded activation");
    check.Array(gate_up, {out.rows(), 2 * out.width()}, out.type(), "gate_up");
    check.Array(weights, {out.rows()}, WideType(out.type()), "the rows' weights");
  }
};

struct ClampedSwiGluBackward {
  static constexpr char kName[] = "clamped_swiglu_backward";

  Array gate_up;            // [S, 2 * inner] T; becomes its own gradient
  ConstArray weights;       // [S] W
  ConstArray out_gradient;  // [S, inner] T
  ClampedSwiGluForm form;
  Array out;               // [S, inner] T, written as ClampedSwiGlu does, bit for bit
  Array weight_gradients;  // [S] W, written

  void Check(const ArrayChecks& check) const {
    ClampedSwiGlu{gate_up, weights, form, out}.Check(check);
    check.Array(out_gradient, out.shape(), out.type(), "the activation's gradient");
    check.Array(weight_gradients, {out.rows()}, WideType(out.type()), "the weights' gradients");
  }
};

// The activation of one element, as both kinds of device compute it.
template <typename Real>
struct ClampedGate {
  Real gate, up;
  bool gate_moves, up_moves;  // within the bounds
  Real sigmoid = 0;           // of alpha * gate: the caller's exponential gives it

  MUSTER_HOST_DEVICE ClampedGate(Real g, Real u, Real limit)
      : gate(g > limit ? limit : g),
        up(u > limit    ? limit
           : u < -limit ? -limit
                        : u),
        gate_moves(g <= limit),
        up_moves(u >= -limit && u <= limit) {}

  MUSTER_HOST_DEVICE Real Value() const { return (up + Real(1)) * (gate * sigmoid); }
  // The value's slopes by gate and by up.
  MUSTER_HOST_DEVICE Real GateSlope(Real alpha) const {
    if (!gate_moves) return Real(0);
    return (up + Real(1)) * (sigmoid + alpha * gate * sigmoid * (Real(1) - sigmoid));
  }
  MUSTER_HOST_DEVICE Real UpSlope() const { return up_moves ? gate * sigmoid : Real(0); }
};

}  // namespace muster::op
