// NF4 for AVX2. Compiled for that instruction set; only reached through the run-time choice in
// nf4.cc.
#include <immintrin.h>

#include <cstring>

#include "trainer/ops/cpu/nf4_forms.h"

namespace muster {
namespace {

struct Avx2 {
  static MUSTER_INLINE void Levels(const std::uint8_t* codes, float* levels) {
    const __m256 low = _mm256_loadu_ps(kNf4Levels), high = _mm256_loadu_ps(kNf4Levels + 8);
    // Four bytes hold eight codes; the first one of a byte lies in its high bits.
    const __m256i shifts = _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24);
    for (int i = 0; i < kNf4Block; i += 8) {
      std::int32_t word;
      std::memcpy(&word, codes + i / 2, sizeof(word));
      // The look-up takes three bits of each index, the choice between its halves the fourth.
      const __m256i index = _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
      const __m256 is_high = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
      _mm256_store_ps(levels + i, _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, index),
                                                   _mm256_permutevar8x32_ps(high, index), is_high));
    }
  }
};

}  // namespace

constexpr Nf4Dequantizer nf4::kAvx2 = nf4::Dequantize<Avx2>;

}  // namespace muster
