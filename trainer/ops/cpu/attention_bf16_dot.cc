// Attention in bf16 with AVX512-BF16's dot product of pairs. Compiled for that instruction set;
// only reached through the run-time choice in attention.cc.
#include "trainer/ops/cpu/attention_bf16.h"
#include "trainer/ops/cpu/attention_kernels.h"

namespace muster {
namespace {

using attention::kBlock;
using attention::kSide;

struct Avx512Bf16 {};

struct Bf16Dot : attention::Bf16Blocks<Avx512Bf16> {
  static MUSTER_INLINE void Multiply(Real* c, const Packed* a, const Packed* b, int count) {
    MultiplyRows<false>(c, a, kBlock, b, kBlock, count);
  }
  static MUSTER_INLINE void MultiplyAdd(Real* c, const Packed* a, std::int64_t a_step,
                                        const Packed* b, std::int64_t b_step, int count) {
    MultiplyRows<true>(c, a, a_step, b, b_step, count);
  }

 private:
  static constexpr int kRows = 8;

  template <bool kAdd>
  static MUSTER_INLINE void MultiplyRows(Real* c, const Packed* a, std::int64_t a_step,
                                         const Packed* b, std::int64_t b_step, int count) {
    for (int row = 0; row < kSide; row += kRows) {
      Strip<kAdd>(c + row * kSide, a + row * kSide, a_step, b, b_step, count);
    }
  }

  template <bool kAdd>
  static MUSTER_INLINE void Strip(Real* c, const Packed* a, std::int64_t a_step, const Packed* b,
                                  std::int64_t b_step, int count) {
    Vector sum[kRows][2];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sum[r][0] = kAdd ? LoadVector(c + r * kSide) : Vector{};
      sum[r][1] = kAdd ? LoadVector(c + r * kSide + kLanes) : Vector{};
    }
    for (int i = 0; i < count; ++i, a += a_step, b += b_step) {
      for (int k = 0; k < kSide; k += 2) {
        const auto b0 = (__m512bh)_mm512_load_si512(b + k * kSide);
        const auto b1 = (__m512bh)_mm512_load_si512(b + k * kSide + 2 * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          std::int32_t pair;
          std::memcpy(&pair, a + r * kSide + k, sizeof(pair));
          const auto left = (__m512bh)_mm512_set1_epi32(pair);
          sum[r][0] = _mm512_dpbf16_ps(sum[r][0], left, b0);
          sum[r][1] = _mm512_dpbf16_ps(sum[r][1], left, b1);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      StoreVector(c + r * kSide, sum[r][0]);
      StoreVector(c + r * kSide + kLanes, sum[r][1]);
    }
  }
};

}  // namespace

constexpr AttentionKernels<BFloat16> kBf16DotAttention = attention::MakeKernels<Bf16Dot>();

}  // namespace muster
