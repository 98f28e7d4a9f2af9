// Dropout by masks that are computed and never kept: whether an element counts is a function of a
// key and of the element's place, so forward and backward, every cut into ranges, every kind of
// device and every repetition of a step get the same mask.
//
// The function of (key, row, column): the key's own part for the row, 64 bits that SplitMix64's
// finalizer mixes (Steele, Lea, Flood 2014), gives two words. The first begins a sequence whose
// steps are the columns (Weyl's, by 2^32 over the golden ratio); each of its words is mixed by two
// rounds of shift, exclusive or and product with the multipliers of "lowbias32" (Wellons' search
// for 32-bit mixers of low bias), the second word coming in between. Only 32-bit operations are
// done per element, so that loops over columns are vectorised. An element counts nothing where the
// result is below p * 2^32.
//
// Pure; any thread. The CUDA kernel compiles the same functions.
#pragma once

#include <cstdint>

#include "trainer/core/element.h"
#include "trainer/ops/array_checks.h"

namespace muster {

// What a mask is a function of, all in one number.
struct DropoutKey {
  std::uint64_t bits = 0;
  bool operator==(const DropoutKey&) const = default;
};

// The key of part `number` of what `key` is for: of a micro-batch of a training, of a block of
// that, of a matrix of that, of a row.
MUSTER_HOST_DEVICE DropoutKey PartOfKey(DropoutKey key, std::uint64_t number) {
  std::uint64_t x = key.bits + 0x9e3779b97f4a7c15u * (number + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return DropoutKey{x ^ (x >> 31)};
}

// The number of an element, by its row's key and its column.
MUSTER_HOST_DEVICE std::uint32_t DropoutNumber(DropoutKey row, std::uint32_t column) {
  std::uint32_t x = static_cast<std::uint32_t>(row.bits) + column * 0x9e3779b9u;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15) ^ static_cast<std::uint32_t>(row.bits >> 32)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// What an element's number must reach, so that it counts. 0 <= p < 1.
inline std::uint32_t DropoutThreshold(double p) { return static_cast<std::uint32_t>(p * 0x1p32); }

namespace op {

// out = x / (1 - p) where an element counts, else 0.
struct Dropout {
  static constexpr char kName[] = "dropout";

  ConstArray x;  // [N, any] T
  DropoutKey key;
  double p = 0;  // 0 <= p < 1
  Array out;     // as x; may be x

  void Check(const ArrayChecks& check) const {
    check.Rows(x, "the input of dropout");
    check.Array(out, x.shape(), x.type(), "the output of dropout");
    if (!(p >= 0 && p < 1)) Refuse("dropout with the probability " + std::to_string(p));
  }
};

}  // namespace op
}  // namespace muster
