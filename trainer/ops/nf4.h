// NF4: weights in four bits, with the bytes of bitsandbytes 0.50 on a CPU.
//
// The format (QLoRA, arXiv 2305.14314; bitsandbytes' backends/default/ops.py, csrc/cpu_ops.cpp):
// - Blocks of 64 elements in a row; the last one may be shorter. `absmax` is a block's largest
//   magnitude, fp32. A code is the number of the level that is nearest to the element over absmax;
//   of two equally near ones the lower. Two codes in a byte, the first in the high bits; a last one
//   without a partner has the code of zero beside it.
// - The element is multiplied by the rounded reciprocal of absmax, but divided by it in a last,
//   shorter block. There absmax is stored as at least 1e-38; in a whole block it only counts as
//   that much, and is stored as it is.
// - NaN makes absmax NaN and all codes of its block 15.
// - Double quantisation: absmax less its mean (`offset`) becomes one of 256 codes, in blocks of 256
//   with an fp32 absmax of their own. The nearest entry of the code book is looked up on a grid of
//   65536 steps from -1 to 1, so near the middle between two entries it is the grid that decides.
//   A NaN counts nothing in a maximum and has the code 0.
// A value is level[code] * absmax, each product and sum rounded to fp32, in fp64 too: it is the
// same weight in every element type that can hold it, up to 2^-24 of it away from the product in
// fp64.
//
// Blocks are independent, and so are the bits of how they are cut into ranges.
#pragma once

#include <cstdint>

#include "trainer/ops/array_checks.h"

namespace muster {

inline constexpr std::int64_t kNf4Block = 64;
inline constexpr std::int64_t kNf4NestedBlock = 256;

inline constexpr float kNf4Levels[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

// Sizes of the arrays of a tensor of `count` elements.
constexpr std::int64_t Nf4Bytes(std::int64_t count) { return (count + 1) / 2; }
constexpr std::int64_t Nf4Blocks(std::int64_t count) { return (count + kNf4Block - 1) / kNf4Block; }
constexpr std::int64_t Nf4NestedBlocks(std::int64_t count) {
  return (Nf4Blocks(count) + kNf4NestedBlock - 1) / kNf4NestedBlock;
}

// One quantised tensor, in memory of the device that is to read it. Either absmax, or what follows.
struct Nf4Source {
  std::int64_t count = 0;                      // elements
  const std::uint8_t* codes = nullptr;         // [Nf4Bytes(count)]
  const float* absmax = nullptr;               // [Nf4Blocks(count)]; null: doubly quantised
  const std::uint8_t* absmax_codes = nullptr;  // [Nf4Blocks(count)]
  const float* nested_absmax = nullptr;        // [Nf4NestedBlocks(count)]
  const float* nested_code = nullptr;          // [256]
  float offset = 0;
};

namespace op {

// Rounded to T.
struct DequantizeNf4 {
  static constexpr char kName[] = "dequantize_nf4";

  Nf4Source source;
  Array out;  // as many elements of T as the source has, in any shape

  void Check(const ArrayChecks& check) const {
    if (out.count() != source.count) {
      Refuse("the dequantised tensor has " + std::to_string(out.count()) + " elements, not " +
             std::to_string(source.count));
    }
    check.Array(out, out.shape(), out.type(), "the dequantised tensor");
    if (source.count == 0) return;
    if (source.codes == nullptr) Refuse("the quantised tensor has no codes");
    const bool nested = source.absmax_codes != nullptr && source.nested_absmax != nullptr &&
                        source.nested_code != nullptr;
    if (source.absmax == nullptr && !nested) {
      Refuse("the quantised tensor has no largest magnitudes of its blocks");
    }
  }
};

}  // namespace op
}  // namespace muster
