// Operations on blocks for processors with AVX-512 (F, BW, DQ, VL). Internal to attention*.cc that
// are compiled for it.
#pragma once

#include <immintrin.h>

#include "trainer/ops/cpu/attention_blocks.h"

namespace muster::attention {

// 16 x 16 words of 32 bits; strides in words, rows aligned to 64 bytes.
MUSTER_INLINE void Transpose16(const void* from, int from_stride, void* to, int to_stride) {
  const auto* in = static_cast<const std::int32_t*>(from);
  auto* out = static_cast<std::int32_t*>(to);
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = _mm512_load_si512(in + i * from_stride);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  // a[4 i + j] holds, in 128-bit lane l, rows 4 i to 4 i + 3 of column 4 l + j.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i top_even = _mm512_shuffle_i32x4(a[j], a[4 + j], 0x88);
    const __m512i top_odd = _mm512_shuffle_i32x4(a[j], a[4 + j], 0xdd);
    const __m512i low_even = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0x88);
    const __m512i low_odd = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0xdd);
    _mm512_store_si512(out + j * to_stride, _mm512_shuffle_i32x4(top_even, low_even, 0x88));
    _mm512_store_si512(out + (8 + j) * to_stride, _mm512_shuffle_i32x4(top_even, low_even, 0xdd));
    _mm512_store_si512(out + (4 + j) * to_stride, _mm512_shuffle_i32x4(top_odd, low_odd, 0x88));
    _mm512_store_si512(out + (12 + j) * to_stride, _mm512_shuffle_i32x4(top_odd, low_odd, 0xdd));
  }
}

template <typename Element, typename Isa>
struct Avx512Arithmetic : VectorArithmetic<Element, 16, Isa> {
  using Base = VectorArithmetic<Element, 16, Isa>;
  using typename Base::Packed;
  using typename Base::Real;
  using typename Base::Vector;

  static MUSTER_INLINE Vector Max(Vector a, Vector b) { return _mm512_max_ps(a, b); }
  static MUSTER_INLINE bool AnyGreater(Vector a, Vector b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0;
  }

  static MUSTER_INLINE Real Sum(Vector value) { return _mm512_reduce_add_ps(value); }

  static MUSTER_INLINE void TransposeReal(const Real* block, Real* to) {
    for (int r = 0; r < kSide; r += 16) {
      for (int c = 0; c < kSide; c += 16) {
        Transpose16(block + r * kSide + c, kSide, to + c * kSide + r, kSide);
      }
    }
  }
  static MUSTER_INLINE void LeftTransposed(const Packed* block, Packed* to) {
    TransposeReal(block, to);
  }
  static MUSTER_INLINE void RightTransposed(const Packed* block, Packed* to) {
    TransposeReal(block, to);
  }
};

}  // namespace muster::attention
