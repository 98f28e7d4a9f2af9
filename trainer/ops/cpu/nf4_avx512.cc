// NF4 for AVX-512. Compiled for that instruction set; only reached through the run-time choice in
// nf4.cc.
#include <immintrin.h>

#include "trainer/ops/cpu/nf4_forms.h"

namespace muster {
namespace {

struct Avx512 {
  static MUSTER_INLINE void Levels(const std::uint8_t* codes, float* levels) {
    const __m512 table = _mm512_loadu_ps(kNf4Levels);
    // Eight bytes hold sixteen codes; the first one of a byte lies in its high bits.
    const __m512i words = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i shifts =
        _mm512_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24, 4, 0, 12, 8, 20, 16, 28, 24);
    for (int i = 0; i < kNf4Block; i += 16) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i / 2));
      const __m512i spread = _mm512_permutexvar_epi32(words, _mm512_castsi128_si512(bytes));
      // The look-up takes the lowest four bits of each index.
      const __m512i index = _mm512_srlv_epi32(spread, shifts);
      _mm512_store_ps(levels + i, _mm512_permutexvar_ps(index, table));
    }
  }
};

}  // namespace

constexpr Nf4Dequantizer nf4::kAvx512 = nf4::Dequantize<Avx512>;

}  // namespace muster
