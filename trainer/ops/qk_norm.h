// RMS norm of the heads of queries and keys, each over its own root mean square, times a weight;
// values are copied.
//
// Rounding is that of Hugging Face's Qwen3RMSNorm: normed in W, to T, times the weight.
#pragma once

#include "trainer/ops/array_checks.h"

namespace muster::op {

// What both directions demand; `out` is apart from qkv.
inline void CheckQkNorm(const ArrayChecks& check, const ConstArray& qkv,
                        const ConstArray& query_weight, const ConstArray& key_weight,
                        const AttentionHeads& heads, const ConstArray& out,
                        const ConstArray& scale) {
  check.Rows(qkv, "qkv");
  check.Array(qkv, {qkv.rows(), heads.joined_width()}, qkv.type(), "qkv");
  check.Array(query_weight, {heads.head_dim}, qkv.type(), "the query norm's weight");
  check.Array(key_weight, {heads.head_dim}, qkv.type(), "the key norm's weight");
  check.Array(out, qkv.shape(), qkv.type(), "the normed qkv");
  check.Array(scale, {qkv.rows(), heads.heads + heads.kv_heads}, WideType(qkv.type()),
              "the scale of the heads' norms");
  if (out.data() == qkv.data()) Refuse("the normed qkv lies over qkv");
}

struct QkNorm {
  static constexpr char kName[] = "qk_norm";

  ConstArray qkv;           // [N, joined width] T
  ConstArray query_weight;  // [head_dim] T
  ConstArray key_weight;    // [head_dim] T
  double eps = 0;
  AttentionHeads heads;
  Array out;    // [N, joined width] T, apart from qkv
  Array scale;  // [N, heads + kv_heads] W: 1 / rms of each head

  void Check(const ArrayChecks& check) const {
    CheckQkNorm(check, qkv, query_weight, key_weight, heads, out, scale);
  }
};

struct QkNormBackward {
  static constexpr char kName[] = "qk_norm_backward";

  ConstArray qkv;  // as QkNorm's, as are the weights and the scale
  ConstArray query_weight;
  ConstArray key_weight;
  ConstArray scale;
  AttentionHeads heads;
  Array gradient;                       // [N, joined width] T, of `out`; becomes that of qkv
  GradientArray query_weight_gradient;  // [head_dim]
  GradientArray key_weight_gradient;    // [head_dim]

  void Check(const ArrayChecks& check) const {
    CheckQkNorm(check, qkv, query_weight, key_weight, heads, gradient, scale);
    check.Gradient(query_weight_gradient, heads.head_dim,
                   "the gradient of the query norm's weight");
    check.Gradient(key_weight_gradient, heads.head_dim, "the gradient of the key norm's weight");
  }
};

}  // namespace muster::op
