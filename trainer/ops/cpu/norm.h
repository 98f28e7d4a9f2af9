// RMS norm, forward and backward: of whole rows, with the residual addition before it, and of the
// heads of queries and keys.
//
// Rounding is Hugging Face's: the sum is rounded to the element type, the normed value once before
// and once after its weight. Rows are independent forward, so a caller may cut them into ranges for
// several threads and gets the same bits; backward, a range adds to one array of partial sums for
// the weight's gradient, which the caller keeps apart by range.
//
// Pure loops over the caller's memory; any thread. No Torch.
#pragma once

#include <cstdint>

#include "trainer/core/element.h"

namespace muster {

// Arrays are [rows, width], weight [width], scale [rows].
template <typename Element>
struct NormRows {
  std::int64_t width = 0;
  double eps = 0;
  const Element* x = nullptr;
  const Element* delta = nullptr;  // null: nothing is added
  Element* sum = nullptr;          // x + delta; may be x
  const Element* weight = nullptr;
  Wide<Element>* scale = nullptr;  // 1 / rms of a row of the sum
  Element* y = nullptr;
};
template <typename Element>
void AddNorm(const NormRows<Element>& rows, std::int64_t begin, std::int64_t end);
// y from sum, weight and scale, with the bits that AddNorm wrote.
template <typename Element>
void RecomputeRmsNorm(const NormRows<Element>& rows, std::int64_t begin, std::int64_t end);

template <typename Element>
struct NormBackwardRows {
  std::int64_t width = 0;
  const Element* y_gradient = nullptr;
  const Element* sum = nullptr;
  const Element* weight = nullptr;
  const Wide<Element>* scale = nullptr;
  Element* gradient = nullptr;  // of the sum: the norm's part is added
  // [width]: the parts of the range's rows are added. Null: the weight is frozen.
  Wide<Element>* weight_gradient = nullptr;
};
template <typename Element>
void NormBackward(const NormBackwardRows<Element>& rows, std::int64_t begin, std::int64_t end);

// Joined heads of queries, keys and values, [rows, (heads + 2 * kv_heads) * head_dim]; a norm of
// its own for each head of queries and keys, values are copied. Weights are [head_dim], scale
// [rows, heads + kv_heads]. `out` is apart from `joined`.
template <typename Element>
struct QkNormRows {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  double eps = 0;
  const Element* joined = nullptr;
  const Element* query_weight = nullptr;
  const Element* key_weight = nullptr;
  Wide<Element>* scale = nullptr;
  Element* out = nullptr;
};
template <typename Element>
void QkNorm(const QkNormRows<Element>& rows, std::int64_t begin, std::int64_t end);

template <typename Element>
struct QkNormBackwardRows {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  const Element* joined = nullptr;
  const Element* query_weight = nullptr;
  const Element* key_weight = nullptr;
  const Wide<Element>* scale = nullptr;
  Element* gradient = nullptr;  // of the output; becomes that of `joined`
  // [head_dim]: the parts of the range's rows are added. Null: the weight is frozen.
  Wide<Element>* query_weight_gradient = nullptr;
  Wide<Element>* key_weight_gradient = nullptr;
};
template <typename Element>
void QkNormBackward(const QkNormBackwardRows<Element>& rows, std::int64_t begin, std::int64_t end);

}  // namespace muster
