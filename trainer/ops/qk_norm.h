// RMS norm of queries and keys, times a weight; values are copied. The weights say what is normed
// together: each head by itself, over its own root mean square (weights [head_dim]), or all heads
// of the queries and all of the keys (weights [heads * head_dim] and [kv_heads * head_dim]).
//
// Rounding is that of Hugging Face's Qwen3RMSNorm: normed in W, to T, times the weight.
// Zero-centered weights are as in norm.h.
#pragma once

#include "trainer/ops/array_checks.h"

namespace muster::op {

// What is normed together, in a row of qkv.
struct QkGroups {
  std::int64_t queries = 0;  // groups of them
  std::int64_t query_width = 0;
  std::int64_t keys = 0;
  std::int64_t key_width = 0;
};

inline QkGroups GroupsOf(const AttentionHeads& heads, const ConstArray& query_weight,
                         const ConstArray& key_weight) {
  const std::int64_t query = query_weight.count(), key = key_weight.count();
  return {.queries = heads.heads * heads.head_dim / query,
          .query_width = query,
          .keys = heads.kv_heads * heads.head_dim / key,
          .key_width = key};
}

// What both directions demand; `out` is apart from qkv.
inline void CheckQkNorm(const ArrayChecks& check, const ConstArray& qkv,
                        const ConstArray& query_weight, const ConstArray& key_weight,
                        const AttentionHeads& heads, const ConstArray& out,
                        const ConstArray& scale) {
  check.Rows(qkv, "qkv");
  check.Array(qkv, {qkv.rows(), heads.joined_width()}, qkv.type(), "qkv");
  const bool all = query_weight.defined() && query_weight.count() != heads.head_dim;
  const auto width = [&](std::int64_t count) { return (all ? count : 1) * heads.head_dim; };
  check.Array(query_weight, {width(heads.heads)}, qkv.type(), "the query norm's weight");
  check.Array(key_weight, {width(heads.kv_heads)}, qkv.type(), "the key norm's weight");
  check.Array(out, qkv.shape(), qkv.type(), "the normed qkv");
  const QkGroups groups = GroupsOf(heads, query_weight, key_weight);
  check.Array(scale, {qkv.rows(), groups.queries + groups.keys}, WideType(qkv.type()),
              "the scale of the heads' norms");
  if (out.data() == qkv.data()) Refuse("the normed qkv lies over qkv");
}

struct QkNorm {
  static constexpr char kName[] = "qk_norm";

  ConstArray qkv;           // [N, joined width] T
  ConstArray query_weight;  // [head_dim] T, or [heads * head_dim]
  ConstArray key_weight;    // [head_dim] T, or [kv_heads * head_dim]
  double eps = 0;
  AttentionHeads heads;
  Array out;    // [N, joined width] T, apart from qkv
  Array scale;  // [N, heads + kv_heads] W: 1 / rms of each head; of all heads: [N, 2]
  bool zero_centered = false;  // the weights

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
  GradientArray query_weight_gradient;  // as wide as the weight
  GradientArray key_weight_gradient;    // likewise
  bool zero_centered = false;           // the weights

  void Check(const ArrayChecks& check) const {
    CheckQkNorm(check, qkv, query_weight, key_weight, heads, gradient, scale);
    check.Gradient(query_weight_gradient, query_weight.count(),
                   "the gradient of the query norm's weight");
    check.Gradient(key_weight_gradient, key_weight.count(),
                   "the gradient of the key norm's weight");
  }
};

}  // namespace muster::op
