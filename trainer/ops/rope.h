// Rotary position embedding, half-rotation form, in place.
#pragma once

#include "trainer/ops/array_checks.h"

namespace muster::op {

// Turns query and key by the angles of their positions, which are counted from the document's
// begin; values are left alone, and so is what a head has behind its 2 R first elements.
struct ApplyRope {
  static constexpr char kName[] = "apply_rope";

  Array qkv;       // [N, joined width] T
  ConstArray cos;  // [length, R] W
  ConstArray sin;
  const BatchShape& shape;
  AttentionHeads heads;
  int direction = 1;  // 1: forward; -1: gradients, back

  void Check(const ArrayChecks& check) const {
    if (heads.head_dim % 2 != 0) {
      Refuse("heads of " + std::to_string(heads.head_dim) + " elements have no halves");
    }
    check.Rows(qkv, "qkv");
    check.Array(qkv, {shape.tokens(), heads.joined_width()}, qkv.type(), "qkv");
    check.Rows(cos, "the table of cosines");
    if (cos.width() < 1 || 2 * cos.width() > heads.head_dim) {
      Refuse("a table of " + std::to_string(cos.width()) + " angles for heads of " +
             std::to_string(heads.head_dim) + " elements");
    }
    const ArrayShape angles{shape.length, cos.width()};
    check.Array(cos, angles, WideType(qkv.type()), "the table of cosines");
    check.Array(sin, angles, WideType(qkv.type()), "the table of sines");
    check.Documents(shape);
  }
};

}  // namespace muster::op
