// The algorithm of attention.h over any arithmetic on blocks (attention_blocks.h).
//
// Scores are computed transposed, keys down and queries across: the maximum and the sum of a query
// then are lane-wise operations over rows, the statistics of 32 queries are two vectors, and the
// probabilities come out in the very order in which the next product wants them.
//
//   forward   S^T = K Q^T               P^T = 2^(S^T - max)       O^T += V^T P^T
//   backward  S^T = K Q^T  (recomputed from the stored logarithm) dP^T = V dO^T
//             dS^T = P^T (dP^T - D)     D = rowsum(dO O)
//             dV += P^T dO              dK += dS^T Q              dQ^T += K^T dS^T
//
// Scores with a cap become cap / scale * tanh(scale / cap * S^T) before anything is masked, so that
// all else is as without one; backward multiplies dS^T by the slope 1 - tanh^2.
//
// Everything is padded with zeros to blocks of 32: a padded key lies behind every real query, and
// a padded query has zero in Q and dO, so it adds nothing. A document has blocks of its own, so
// nothing of another one is ever read.
//
// Internal to attention*.cc: each makes one AttentionKernels of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/core/vector_math.h"
#include "trainer/ops/cpu/attention_blocks.h"
#include "trainer/ops/cpu/attention_paths.h"

namespace muster::attention {

inline constexpr double kLog2e = 1.4426950408889634;
inline constexpr double kLn2 = 0.6931471805599453;

// The document at hand and its sizes in blocks: positions fill `rows` blocks, the head dimension
// `columns`. At first the longest document there may be, for which memory is taken.
struct Grid {
  std::int64_t head_dim;
  std::int64_t columns;
  std::int64_t begin = 0;  // the document's first position
  std::int64_t length;
  std::int64_t rows;
  std::int64_t window = 0;  // shorter than the document, or 0

  MUSTER_INLINE explicit Grid(const AttentionShape& shape)
      : head_dim(shape.head_dim), columns((shape.head_dim + kSide - 1) / kSide) {
    Fit(shape, shape.length);
  }

  MUSTER_INLINE void MoveTo(const AttentionShape& shape, std::int64_t document) {
    const std::int64_t* bounds = shape.bounds;
    begin = bounds == nullptr ? document * shape.length : bounds[document];
    Fit(shape, bounds == nullptr ? shape.length : bounds[document + 1] - begin);
  }

  // The first block of keys that a block of queries sees; the last one is its own.
  MUSTER_INLINE std::int64_t FirstKey(std::int64_t query) const {
    const std::int64_t oldest = query * kSide - window + 1;
    return window == 0 || oldest < 0 ? 0 : oldest / kSide;
  }
  // Behind the last block of queries that sees a block of keys.
  MUSTER_INLINE std::int64_t QueriesEnd(std::int64_t key) const {
    const std::int64_t end = (key * kSide + kSide + window - 2) / kSide + 1;
    return window == 0 || end > rows ? rows : end;
  }
  MUSTER_INLINE bool Sees(std::int64_t query, std::int64_t key) const {
    return key <= query && key >= FirstKey(query);
  }
  // Minus infinity where a query (lane) does not see a key (row), in a block that is not all seen.
  template <typename Arithmetic>
  MUSTER_INLINE void Mask(std::int64_t query, std::int64_t key,
                          typename Arithmetic::Real* scores) const;

 private:
  MUSTER_INLINE void Fit(const AttentionShape& shape, std::int64_t positions) {
    length = positions;
    rows = (length + kSide - 1) / kSide;
    window = shape.window < length ? shape.window : 0;
  }
};

// Hands out parts of the scratch memory; from null it only adds up how much is needed.
class Arena {
 public:
  explicit Arena(std::byte* memory) : memory_(memory) {}

  template <typename T>
  T* Take(std::int64_t count) {
    std::byte* taken = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(taken);
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

// One head of the document at hand: `data` is its first position.
template <typename Element>
struct HeadRows {
  Element* data;
  std::int64_t stride;

  HeadRows(const HeadArray<Element>& array, const Grid& grid, std::int64_t head)
      : data(array.data + grid.begin * array.stride + head * grid.head_dim), stride(array.stride) {}
};

// Reads and writes blocks of a head, and knows how much of a block the document fills.
template <typename Arithmetic>
struct BlockIo {
  using Element = typename Arithmetic::Element;
  using Real = typename Arithmetic::Real;
  using Packed = typename Arithmetic::Packed;

  const Grid& grid;

  static int Part(std::int64_t size, std::int64_t block) {
    const std::int64_t left = size - block * kSide;
    return left < kSide ? static_cast<int>(left) : kSide;
  }

  MUSTER_INLINE void Read(const HeadRows<const Element>& head, std::int64_t row,
                          std::int64_t column, Packed* block) const {
    Arithmetic::Read(head.data + row * kSide * head.stride + column * kSide, head.stride,
                     Part(grid.length, row), Part(grid.head_dim, column), block);
  }
  MUSTER_INLINE void Write(const Real* block, Real factor, const HeadRows<Element>& head,
                           std::int64_t row, std::int64_t column) const {
    Arithmetic::Write(block, factor, Part(grid.length, row), Part(grid.head_dim, column),
                      head.data + row * kSide * head.stride + column * kSide, head.stride);
  }
  MUSTER_INLINE void WriteTransposed(const Real* block, Real factor, const HeadRows<Element>& head,
                                     std::int64_t row, std::int64_t column) const {
    alignas(64) Real turned[kBlock];
    Arithmetic::TransposeReal(block, turned);
    Write(turned, factor, head, row, column);
  }
};

// Minus infinity where the key (row) comes after the query (lane), in a block on the diagonal.
template <typename Arithmetic>
MUSTER_INLINE void MaskDiagonal(typename Arithmetic::Real* scores) {
  using Real = typename Arithmetic::Real;
  for (int key = 1; key < kSide; ++key) {
    for (int query = 0; query < kSide; ++query) {
      Real& score = scores[key * kSide + query];
      score = query < key ? -static_cast<Real>(__builtin_inf()) : score;
    }
  }
}

// Minus infinity where the query (lane) lies `distance` or more behind the key (row).
template <typename Arithmetic>
MUSTER_INLINE void MaskDistance(int distance, typename Arithmetic::Real* scores) {
  using Real = typename Arithmetic::Real;
  for (int key = 0; key < kSide; ++key) {
    for (int query = 0; query < kSide; ++query) {
      Real& score = scores[key * kSide + query];
      score = query >= key + distance ? -static_cast<Real>(__builtin_inf()) : score;
    }
  }
}

template <typename Arithmetic>
MUSTER_INLINE void Grid::Mask(std::int64_t query, std::int64_t key,
                              typename Arithmetic::Real* scores) const {
  if (key == query) MaskDiagonal<Arithmetic>(scores);
  const std::int64_t distance = window - (query - key) * kSide;  // within the block
  if (window != 0 && distance < kSide) MaskDistance<Arithmetic>(static_cast<int>(distance), scores);
}

// The scores of a block under their cap; `slopes`: how a score's gradient passes it, null: not
// wanted.
template <typename Real>
MUSTER_INLINE void CapScores(const AttentionShape& shape, Real* __restrict scores,
                             Real* __restrict slopes) {
  const Real to_cap = static_cast<Real>(shape.scale / shape.cap);
  const Real from_cap = static_cast<Real>(shape.cap / shape.scale);
  for (int i = 0; i < kBlock; ++i) {
    const Real tangent = Tanh(scores[i] * to_cap);
    scores[i] = tangent * from_cap;
    if (slopes != nullptr) slopes[i] = Real{1} - tangent * tangent;
  }
}

template <typename Number>
MUSTER_INLINE void Clear(Number* numbers, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) numbers[i] = Number{};
}

}  // namespace muster::attention
