// Causal attention over each document of a batch, within the window, with grouped key heads and
// scaled scores.
#pragma once

#include "trainer/ops/array_checks.h"

namespace muster::op {

// What both directions demand.
inline void CheckAttention(const ArrayChecks& check, const ConstArray& qkv, const BatchShape& shape,
                           const AttentionHeads& heads, const ConstArray& out,
                           const ConstArray& lse) {
  check.Rows(qkv, "qkv");
  check.Array(qkv, {shape.tokens(), heads.joined_width()}, qkv.type(), "qkv");
  check.Array(out, {shape.tokens(), heads.heads * heads.head_dim}, qkv.type(),
              "attention's output");
  check.Array(lse, {shape.rows, heads.heads, shape.length}, WideType(qkv.type()),
              "the array of attention's logarithms");
  if (heads.window < 0) Refuse("a window of " + std::to_string(heads.window) + " tokens");
  check.Documents(shape);
}

struct Attention {
  static constexpr char kName[] = "attention";

  ConstArray qkv;  // [N, joined width] T, rotated
  const BatchShape& shape;
  AttentionHeads heads;
  Array out;  // [N, heads * head_dim] T
  // [rows, heads, length] W: logarithms of the sums of exponentials, in an order of the kernel's
  // own where documents are named: only AttentionBackward of the same shape reads it.
  Array lse;

  void Check(const ArrayChecks& check) const { CheckAttention(check, qkv, shape, heads, out, lse); }
};

struct AttentionBackward {
  static constexpr char kName[] = "attention_backward";

  ConstArray qkv;  // as Attention's, as are out and lse
  ConstArray out;
  ConstArray lse;
  ConstArray out_gradient;  // as out
  const BatchShape& shape;
  AttentionHeads heads;
  Array qkv_gradient;  // as qkv, written

  void Check(const ArrayChecks& check) const {
    CheckAttention(check, qkv, shape, heads, out, lse);
    check.Array(out_gradient, out.shape(), qkv.type(), "the gradient of attention's output");
    check.Array(qkv_gradient, qkv.shape(), qkv.type(), "the gradient of qkv");
  }
};

}  // namespace muster::op
