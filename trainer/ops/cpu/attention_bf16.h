// Operations on blocks of bf16 for processors with AVX512-BF16; products come from the file that
// includes this. Internal to attention*.cc that are compiled for it.
#pragma once

#include "trainer/ops/cpu/attention_avx512.h"

namespace muster::attention {

template <typename Isa>
struct Bf16Blocks : Avx512Arithmetic<BFloat16, Isa> {
  using Base = Avx512Arithmetic<BFloat16, Isa>;
  using Packed = BFloat16;
  using typename Base::Real;
  using typename Base::Vector;
  static constexpr bool kPaired = true;

  static MUSTER_INLINE void Read(const BFloat16* from, std::int64_t stride, int rows, int columns,
                                 Packed* block) {
    const __mmask32 valid = columns == kSide ? ~0u : (1u << columns) - 1;
    for (int r = 0; r < rows; ++r) {
      _mm512_store_si512(block + r * kSide, _mm512_maskz_loadu_epi16(valid, from + r * stride));
    }
    for (int r = rows; r < kSide; ++r) {
      _mm512_store_si512(block + r * kSide, _mm512_setzero_si512());
    }
  }

  static MUSTER_INLINE void Write(const Real* block, Real factor, int rows, int columns,
                                  BFloat16* to, std::int64_t stride) {
    const __mmask32 valid = columns == kSide ? ~0u : (1u << columns) - 1;
    const Vector scale = Base::Broadcast(factor);
    for (int r = 0; r < rows; ++r) {
      _mm512_mask_storeu_epi16(to + r * stride, valid,
                               Round(Base::LoadVector(block + r * kSide) * scale,
                                     Base::LoadVector(block + r * kSide + 16) * scale));
    }
  }

  static MUSTER_INLINE void LeftTransposed(const Packed* block, Packed* to) {
    alignas(64) Packed pairs[kBlock];
    Right(block, pairs);
    for (int half = 0; half < 2; ++half) Transpose16(pairs + half * 32, 32, to + half * 512, 16);
  }

  static MUSTER_INLINE void Right(const Packed* block, Packed* to) {
    for (int r = 0; r < kSide; r += 2) {
      StorePairs(to + r * kSide, _mm512_load_si512(block + r * kSide),
                 _mm512_load_si512(block + (r + 1) * kSide));
    }
  }

  static MUSTER_INLINE void RightTransposed(const Packed* block, Packed* to) {
    for (int half = 0; half < 2; ++half) Transpose16(block + half * 512, 16, to + half * 32, 32);
  }

  static MUSTER_INLINE void StoreLeft(Packed* block, int row, const Vector* even,
                                      const Vector* odd) {
    _mm512_store_si512(block + row * kSide, Round(even[0], even[1]));
    _mm512_store_si512(block + (row + 1) * kSide, Round(odd[0], odd[1]));
  }

  static MUSTER_INLINE void StoreRight(Packed* block, int row, const Vector* even,
                                       const Vector* odd) {
    StorePairs(block + row * kSide, Round(even[0], even[1]), Round(odd[0], odd[1]));
  }

 private:
  static MUSTER_INLINE __m512i Round(Vector low, Vector high) {
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
  }

  static MUSTER_INLINE void StorePairs(Packed* to, __m512i even, __m512i odd) {
    alignas(64) static constexpr std::int16_t kLow[32] = {
        0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
        8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i low = _mm512_load_si512(kLow);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    _mm512_store_si512(to, _mm512_permutex2var_epi16(even, low, odd));
    _mm512_store_si512(to + kSide, _mm512_permutex2var_epi16(even, high, odd));
  }
};

}  // namespace muster::attention
