// Causal attention with grouped key heads, forward and backward, without a matrix of scores. Over
// whole rows, over documents that lie packed one behind the other, and within a sliding window.
//
// Blocks of queries meet blocks of keys; the running maximum and sum of a row stay in registers
// (Dao et al., FlashAttention, arXiv 2205.14135 and 2307.08691). What backward needs of forward is
// the output and one logarithm per row. Blocks above the diagonal or before the window are never
// touched, so time grows with the window, not with the length.
//
// A task is one (document, key head) pair with all query heads that share the key head, so key
// and value gradients have one writer and are added up in a fixed order. Tasks are independent: a
// caller may cut [0, AttentionTasks) into ranges for several threads and gets the same bits.
//
// Element is float, double, BFloat16 or Float16. Scores and sums are fp32 (fp64 for double);
// probabilities and their gradients are rounded to bf16 where a product of bf16 takes them, and
// stay fp32 where the processor multiplies singles faster. The fastest code that the processor has
// is chosen at run time (attention_paths.h); results are equal bit for bit from run to run on the
// same instruction set, and those of a document do not depend on where it lies. An output does not
// depend on later positions, nor on other documents, by a single bit. NaN in an input reaches every
// output that depends on it.
//
// Each calling thread keeps working memory for its largest call: 14 (bf16) to 20 (fp32) times
// length times head_dim bytes, and less than a megabyte beside.
//
// Pure loops over the caller's memory; any thread. No Torch.
#pragma once

#include <cstdint>

#include "trainer/core/element.h"

namespace muster {

struct AttentionShape {
  std::int64_t batch = 0;   // documents
  std::int64_t length = 0;  // positions of every document, or of the longest where `bounds` is set
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads; query head h reads key head h / (heads / kv_heads)
  std::int64_t head_dim = 0;
  double scale = 1;  // of the scores before the softmax
  double cap = 0;    // a scaled score s counts as cap * tanh(s / cap); 0: as s
  // Positions that a position sees, the newest up to itself; 0: all before it in its document.
  std::int64_t window = 0;
  // [batch + 1], ascending from 0: where documents begin, and where the last one ends, among all
  // positions. None is empty. Null: documents of `length` positions each.
  const std::int64_t* bounds = nullptr;
};

inline std::int64_t AttentionTasks(const AttentionShape& shape) {
  return shape.batch * shape.kv_heads;
}

// [positions, heads or kv heads, head_dim], document behind document; the elements of one position
// are contiguous, the positions lie `stride` elements apart, so that query, key and value may be
// parts of one joined array.
template <typename Element>
struct HeadArray {
  Element* data = nullptr;
  std::int64_t stride = 0;
};

template <typename Element>
struct AttentionForwardArrays {
  HeadArray<const Element> query;
  HeadArray<const Element> key;
  HeadArray<const Element> value;
  HeadArray<Element> out;  // written
  // [heads, positions] of each document, one behind the other; written: natural logarithm of the
  // position's sum of exponentials of scaled scores.
  Wide<Element>* lse = nullptr;
};

template <typename Element>
struct AttentionBackwardArrays {
  HeadArray<const Element> query;
  HeadArray<const Element> key;
  HeadArray<const Element> value;
  HeadArray<const Element> out;
  HeadArray<const Element> out_gradient;
  const Wide<Element>* lse = nullptr;
  HeadArray<Element> query_gradient;  // written, as are the next two
  HeadArray<Element> key_gradient;
  HeadArray<Element> value_gradient;
};

// Tasks [begin, end).
template <typename Element>
void AttentionForward(const AttentionShape& shape, const AttentionForwardArrays<Element>& arrays,
                      std::int64_t begin, std::int64_t end);
template <typename Element>
void AttentionBackward(const AttentionShape& shape, const AttentionBackwardArrays<Element>& arrays,
                       std::int64_t begin, std::int64_t end);

}  // namespace muster
