// Causal attention over each document of a batch, within the window, with grouped key heads; scores
// are scaled and capped as AttentionHeads says.
//
// Where there are sinks, each head has one more score, its sink, for a value of zero: a sum of
// exponentials counts it, and so do the logarithms in lse.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trainer/ops/array_checks.h"

namespace muster::op {

// What both directions demand.
inline void CheckAttention(const ArrayChecks& check, const ConstArray& qkv, const BatchShape& shape,
                           const AttentionHeads& heads, const ConstArray& out,
                           const ConstArray& lse, const ConstArray& sinks) {
  check.Rows(qkv, "qkv");
  check.Array(qkv, {shape.tokens(), heads.joined_width()}, qkv.type(), "qkv");
  check.Array(out, {shape.tokens(), heads.heads * heads.head_dim}, qkv.type(),
              "attention's output");
  check.Array(lse, {shape.rows, heads.heads, shape.length}, WideType(qkv.type()),
              "the array of attention's logarithms");
  if (heads.window < 0) Refuse("a window of " + std::to_string(heads.window) + " tokens");
  if (heads.scale < 0 || heads.cap < 0) Refuse("a negative scale or cap of the scores");
  check.Documents(shape);
  if (sinks.defined()) check.Array(sinks, {heads.heads}, qkv.type(), "the sinks");
}

// Queries whose scores a GPU holds at a time where it has no fused kernel: in types of more than 16
// bits, and under a cap.
inline constexpr std::int64_t kMathAttentionQueries = 1024;
// What these scores, the weights made of them and their gradients take, for documents of `length`.
inline std::int64_t MathAttentionBytes(const AttentionHeads& heads, std::int64_t length,
                                       ElementType compute) {
  constexpr std::int64_t kArrays = 4;
  const std::int64_t queries =
      std::min(kMathAttentionQueries, length) * (heads.heads / heads.kv_heads);
  return kArrays * queries * length * static_cast<std::int64_t>(ElementSize(WideType(compute)));
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
  ConstArray sinks = {};  // [heads] T

  void Check(const ArrayChecks& check) const {
    CheckAttention(check, qkv, shape, heads, out, lse, sinks);
  }
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
  ConstArray sinks = {};
  GradientArray sink_gradients = {};  // [heads] of any type

  void Check(const ArrayChecks& check) const {
    CheckAttention(check, qkv, shape, heads, out, lse, sinks);
    if (sink_gradients.array.defined() &&
        (!sinks.defined() || sink_gradients.array.shape() != sinks.shape()))
      Refuse("gradients of other sinks");
    check.Array(out_gradient, out.shape(), qkv.type(), "the gradient of attention's output");
    check.Array(qkv_gradient, qkv.shape(), qkv.type(), "the gradient of qkv");
  }
};

}  // namespace muster::op
