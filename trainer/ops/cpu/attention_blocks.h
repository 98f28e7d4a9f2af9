// Blocks of 32 x 32 numbers, contiguous in memory: what attention_flow.h computes with.
//
// All matrices of the algorithm are grids of such blocks. A product C += A B takes its factors in
// two forms:
//   left   row by row. Natural.
//   right  row by row where a number is as wide as the accumulator; where it is half as wide
//          (bf16), rows 2i and 2i + 1 are interleaved, since the dot-product instructions of
//          AVX512-BF16 and AMX take the two neighbours along the summed dimension from one word.
// Results are blocks of Real, row by row.
//
// VectorArithmetic here holds the operations on blocks for any vector width in the compiler's
// portable vectors; the files of the x86 paths replace operations for which they know better
// instructions. Names an Isa so that code compiled for different processors never shares a symbol.
//
// Internal to attention*.cc.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "trainer/core/element.h"

namespace muster::attention {

inline constexpr int kSide = 32;
inline constexpr int kBlock = kSide * kSide;

template <typename Real, int kLanes>
struct VectorOf {
  using Type __attribute__((vector_size(kLanes * sizeof(Real)))) = Real;
  using Bits = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
  using Integer __attribute__((vector_size(kLanes * sizeof(Real)))) = Bits;
};

// 2^x; exactly zero below the smallest normal number (masked scores are minus infinity); NaN stays.
template <typename Real, int kLanes>
MUSTER_INLINE typename VectorOf<Real, kLanes>::Type Exp2(typename VectorOf<Real, kLanes>::Type x) {
  using Vector = typename VectorOf<Real, kLanes>::Type;
  using Integer = typename VectorOf<Real, kLanes>::Integer;
  if constexpr (sizeof(Real) == 8) {
    Vector y;
    for (int l = 0; l < kLanes; ++l) y[l] = __builtin_exp2(x[l]);
    return y;
  } else {
    // Adding 1.5 * 2^23 rounds to an integer, which then lies in the low bits. The polynomial is
    // the minimax one on [-1/2, 1/2], good to two units in the last place.
    const Vector shifted = x + 12582912.0f;
    const Vector r = x - (shifted - 12582912.0f);
    Vector p = r * 1.33335581e-3f + 9.61812910e-3f;
    p = p * r + 5.55041087e-2f;
    p = p * r + 2.40226507e-1f;
    p = p * r + 6.93147181e-1f;
    p = p * r + 1.0f;
    const Vector y = (Vector)((Integer)p + ((Integer)shifted << 23));
    return x < -126.0f ? Vector{} : y;
  }
}

template <typename ElementType, int kVectorLanes, typename Isa>
struct VectorArithmetic {
  using Element = ElementType;
  using Real = Wide<Element>;
  using Packed = Real;  // what the factors of products are made of
  static constexpr int kLanes = kVectorLanes;
  static constexpr int kVectors = kSide / kLanes;  // that hold one row of a block
  static constexpr bool kPaired = false;           // right factors have interleaved rows
  using Vector = typename VectorOf<Real, kLanes>::Type;
  // The same memory as Vector, whatever the type that was stored there.
  using Stored __attribute__((vector_size(kLanes * sizeof(Real)), may_alias)) = Real;

  // Exists while products are computed.
  struct Session {};

  static MUSTER_INLINE Vector LoadVector(const Real* from) {
    return *reinterpret_cast<const Stored*>(from);
  }
  static MUSTER_INLINE Vector LoadElements(const Element* from) {
    alignas(sizeof(Vector)) Real numbers[kLanes];
    for (int l = 0; l < kLanes; ++l) numbers[l] = Load(from[l]);
    return LoadVector(numbers);
  }
  static MUSTER_INLINE void StoreVector(Real* to, Vector value) {
    *reinterpret_cast<Stored*>(to) = value;
  }
  static MUSTER_INLINE Vector Broadcast(Real value) { return value - Vector{}; }
  static MUSTER_INLINE Vector Exp2(Vector x) { return attention::Exp2<Real, kLanes>(x); }
  static MUSTER_INLINE Vector Max(Vector a, Vector b) { return a > b ? a : b; }
  static MUSTER_INLINE bool AnyGreater(Vector a, Vector b) {
    bool any = false;
    for (int l = 0; l < kLanes; ++l) any |= a[l] > b[l];
    return any;
  }

  static MUSTER_INLINE Real Sum(Vector value) {
    Real sum = 0;
    for (int l = 0; l < kLanes; ++l) sum += value[l];
    return sum;
  }

  // Rows that lie `stride` elements apart; what is beyond `rows` and `columns` becomes zero.
  static MUSTER_INLINE void Read(const Element* from, std::int64_t stride, int rows, int columns,
                                 Packed* block) {
    for (int r = 0; r < kSide; ++r) {
      Packed* row = block + r * kSide;
      const int valid = r < rows ? columns : 0;
      const Element* source = from + (r < rows ? r * stride : 0);
      if (valid == kSide) {
        for (int c = 0; c < kSide; ++c) row[c] = Load(source[c]);
      } else {
        for (int c = 0; c < kSide; ++c) row[c] = c < valid ? Load(source[c]) : Real{0};
      }
    }
  }

  // Rows of a result, multiplied by `factor` and rounded.
  static MUSTER_INLINE void Write(const Real* block, Real factor, int rows, int columns,
                                  Element* to, std::int64_t stride) {
    for (int r = 0; r < rows; ++r) {
      const Real* row = block + r * kSide;
      Element* target = to + r * stride;
      if (columns == kSide) {
        for (int c = 0; c < kSide; ++c) Store(&target[c], row[c] * factor);
      } else {
        for (int c = 0; c < columns; ++c) Store(&target[c], row[c] * factor);
      }
    }
  }

  static MUSTER_INLINE void TransposeReal(const Real* block, Real* to) {
    for (int r = 0; r < kSide; ++r) {
      for (int c = 0; c < kSide; ++c) to[c * kSide + r] = block[r * kSide + c];
    }
  }

  // From the left form: the transposed matrix as left factor, the matrix as right factor, the
  // transposed matrix as right factor.
  static MUSTER_INLINE void LeftTransposed(const Packed* block, Packed* to) {
    TransposeReal(block, to);
  }
  static MUSTER_INLINE void Right(const Packed* block, Packed* to) {
    for (int i = 0; i < kBlock; ++i) to[i] = block[i];
  }
  static MUSTER_INLINE void RightTransposed(const Packed* block, Packed* to) {
    TransposeReal(block, to);
  }

  // Two neighbouring rows of a block, rounded to Packed.
  static MUSTER_INLINE void StoreLeft(Packed* block, int row, const Vector* even,
                                      const Vector* odd) {
    for (int v = 0; v < kVectors; ++v) {
      StoreVector(block + row * kSide + v * kLanes, even[v]);
      StoreVector(block + (row + 1) * kSide + v * kLanes, odd[v]);
    }
  }
  static MUSTER_INLINE void StoreRight(Packed* block, int row, const Vector* even,
                                       const Vector* odd) {
    StoreLeft(block, row, even, odd);
  }

  // c = sum of a[i] b[i] over `count` adjacent blocks.
  static MUSTER_INLINE void Multiply(Real* c, const Packed* a, const Packed* b, int count) {
    MultiplyRows<false>(c, a, kBlock, b, kBlock, count);
  }
  // c += sum of a[i * a_step] b[i * b_step] over `count` blocks.
  static MUSTER_INLINE void MultiplyAdd(Real* c, const Packed* a, std::int64_t a_step,
                                        const Packed* b, std::int64_t b_step, int count) {
    MultiplyRows<true>(c, a, a_step, b, b_step, count);
  }

 private:
  template <bool kAdd>
  static MUSTER_INLINE void MultiplyRows(Real* c, const Packed* a, std::int64_t a_step,
                                         const Packed* b, std::int64_t b_step, int count) {
    for (int column = 0; column < kSide; column += 2 * kLanes) {
      for (int row = 0; row < kSide; row += kStripRows) {
        MultiplyStrip<kAdd>(c + row * kSide + column, a + row * kSide, a_step, b + column, b_step,
                            count);
      }
    }
  }

  // As many sums as hide the latency of an addition and fit into the registers.
  static constexpr int kStripRows = kLanes * sizeof(Real) == 64 ? 8 : 4;

  template <bool kAdd>
  static MUSTER_INLINE void MultiplyStrip(Real* c, const Packed* a, std::int64_t a_step,
                                          const Packed* b, std::int64_t b_step, int count) {
    Vector sum[kStripRows][2];
#pragma GCC unroll 8
    for (int r = 0; r < kStripRows; ++r) {
      sum[r][0] = kAdd ? LoadVector(c + r * kSide) : Vector{};
      sum[r][1] = kAdd ? LoadVector(c + r * kSide + kLanes) : Vector{};
    }
    for (int i = 0; i < count; ++i, a += a_step, b += b_step) {
      for (int k = 0; k < kSide; ++k) {
        const Vector b0 = LoadVector(b + k * kSide);
        const Vector b1 = LoadVector(b + k * kSide + kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kStripRows; ++r) {
          const Vector left = Broadcast(a[r * kSide + k]);
          sum[r][0] += left * b0;
          sum[r][1] += left * b1;
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kStripRows; ++r) {
      StoreVector(c + r * kSide, sum[r][0]);
      StoreVector(c + r * kSide + kLanes, sum[r][1]);
    }
  }
};

}  // namespace muster::attention
