// The forms in which NF4 is read, one per instruction set; nf4.cc chooses among them. For the forms
// themselves, their tests and benchmarks: others use nf4.h.
//
// A form is a struct with Levels(codes, levels), which looks up the 64 codes of a whole block. Its
// type is local to its file, so that code compiled for different processors never shares a symbol.
#pragma once

#include <cstdint>

#include "trainer/core/element.h"
#include "trainer/ops/nf4.h"

namespace muster {

enum class Nf4Path { kPortable, kAvx2, kAvx512 };
inline constexpr Nf4Path kNf4Paths[] = {Nf4Path::kPortable, Nf4Path::kAvx2, Nf4Path::kAvx512};

// A quantised tensor, and where its values go: [count] of `type` (fp64, fp32, bf16 or fp16).
struct Nf4Rows {
  Nf4Source source;
  ElementType type = ElementType::kFloat32;
  void* out = nullptr;
};
// Blocks [begin, end) of the tensor's Nf4Blocks.
using Nf4Dequantizer = void (*)(const Nf4Rows& rows, std::int64_t begin, std::int64_t end);

// Null where it was not compiled or cannot run on this processor. kPortable always exists.
Nf4Dequantizer FindNf4(Nf4Path path);

namespace nf4 {

// Exist on x86-64 alone.
extern const Nf4Dequantizer kAvx2;
extern const Nf4Dequantizer kAvx512;

MUSTER_INLINE float BlockScale(const Nf4Source& source, std::int64_t block) {
  if (source.absmax != nullptr) return source.absmax[block];
  const float product = source.nested_code[source.absmax_codes[block]] *
                        source.nested_absmax[block / kNf4NestedBlock];
  return product + source.offset;
}

MUSTER_INLINE float LevelAt(const std::uint8_t* codes, std::int64_t i) {
  const std::uint8_t pair = codes[i / 2];
  return kNf4Levels[i % 2 == 0 ? pair >> 4 : pair & 15];
}

template <typename Form, typename Element>
MUSTER_INLINE void DequantizeAs(const Nf4Rows& rows, std::int64_t begin, std::int64_t end) {
  const Nf4Source& source = rows.source;
  for (std::int64_t block = begin; block < end; ++block) {
    const float scale = BlockScale(source, block);
    const std::uint8_t* codes = source.codes + block * (kNf4Block / 2);
    Element* __restrict out = static_cast<Element*>(rows.out) + block * kNf4Block;
    const std::int64_t left = source.count - block * kNf4Block;
    if (left < kNf4Block) {
      for (std::int64_t i = 0; i < left; ++i) Store(&out[i], LevelAt(codes, i) * scale);
      continue;
    }
    alignas(64) float levels[kNf4Block];
    Form::Levels(codes, levels);
    for (std::int64_t i = 0; i < kNf4Block; ++i) Store(&out[i], levels[i] * scale);
  }
}

template <typename Form>
void Dequantize(const Nf4Rows& rows, std::int64_t begin, std::int64_t end) {
  switch (rows.type) {
    case ElementType::kFloat64: return DequantizeAs<Form, double>(rows, begin, end);
    case ElementType::kFloat32: return DequantizeAs<Form, float>(rows, begin, end);
    case ElementType::kBFloat16: return DequantizeAs<Form, BFloat16>(rows, begin, end);
    default: return DequantizeAs<Form, Float16>(rows, begin, end);
  }
}

}  // namespace nf4
}  // namespace muster
