// Attention of one new position in each of several texts, over the keys and values that each has.
//
// A text's keys are read once for each of its query heads, in the order in which they lie; scores
// and sums are in the wide type. Heads are independent, so that a caller may cut them into ranges
// for several threads and gets the same bits, whatever other texts there are.
//
// Pure loops over the caller's memory; any thread. No Torch.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/core/element_type.h"

namespace muster {

// One text. Its key heads lie head_stride elements apart, and so do its value heads.
struct DecodeText {
  const void* query = nullptr;  // [heads, head_dim]
  const void* key = nullptr;    // [kv heads, positions, head_dim]
  const void* value = nullptr;  // [kv heads, positions, head_dim]
  void* mixed = nullptr;        // [heads, head_dim]
  std::int64_t positions = 0;   // that it looks at, its own included
  std::int64_t head_stride = 0;
};

struct DecodeAttention {
  ElementType type = ElementType::kFloat32;  // fp64, fp32, bf16 or fp16
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;    // each serves heads / kv_heads query heads in a row
  std::int64_t head_dim = 0;    // at most kMaxDecodeHeadDim
  double scale = 0;             // on scores; 0: 1 / sqrt(head_dim)
  double cap = 0;               // a scaled score s counts as cap * tanh(s / cap); 0: as s
  const void* sinks = nullptr;  // [heads]: one more score of each head, for a value of zero
  std::span<const DecodeText> texts;
};
inline constexpr std::int64_t kMaxDecodeHeadDim = 512;

// Fills the heads from `begin` to `end`, counted over all texts, one text after another.
void DecodeAttend(const DecodeAttention& a, std::int64_t begin, std::int64_t end);

}  // namespace muster
