// Shapes that the operators of a block share: the heads of attention, the rows of a batch.
//
// Plain values; any thread. No Torch.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace muster {

struct AttentionHeads {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  // A token sees the `window` newest tokens of its document up to itself (key j is seen by query i
  // when i - window < j <= i, as Hugging Face's sliding_window has it); 0: all of them.
  std::int64_t window = 0;
  double scale = 0;  // on scores; 0: 1 / sqrt(head_dim)
  // Where it is not 0, a scaled score s counts as cap * tanh(s / cap) (Gemma 2).
  double cap = 0;

  double score_scale() const {
    return scale > 0 ? scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
  }
  std::int64_t joined_width() const { return (heads + 2 * kv_heads) * head_dim; }
};

// Rows of a batch: N = rows * length.
struct BatchShape {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  // The first tokens of the documents that lie packed in the rows, ascending from 0. They cover all
  // N tokens, and none crosses a row's end, so every row's first token is among them. Attention and
  // positions begin anew with each. Empty: each row is one document.
  std::vector<std::int64_t> document_begins;

  std::int64_t tokens() const { return rows * length; }
  bool operator==(const BatchShape&) const = default;
};

}  // namespace muster
