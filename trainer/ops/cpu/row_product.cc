#include "trainer/ops/cpu/row_product.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "trainer/ops/cpu/kernel.h"

namespace muster {
namespace {

// So many rows are read side by side, far apart: processors look ahead in each of several streams,
// which brings twice as much from memory as one row after the other, and more than prefetching
// does.
constexpr int kStreams = 8;
constexpr int kHalf = 8;
constexpr int kChunk = 2 * kHalf;

template <typename Real, int kCount>
struct LanesOf {
  using Type __attribute__((vector_size(kCount * sizeof(Real)))) = Real;
};
template <typename Real>
using Vector = typename LanesOf<Real, kHalf>::Type;

// kChunk elements, widened; of bf16 every second one in each half, which takes one operation each.
template <typename T>
struct Chunk {
  Vector<Wide<T>> first, second;

  MUSTER_INLINE explicit Chunk(const T* from) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      Vector<std::uint32_t> pairs;
      std::memcpy(&pairs, from, sizeof pairs);
      const Vector<std::uint32_t> lower = pairs << 16, upper = pairs & 0xffff0000u;
      std::memcpy(&first, &lower, sizeof first);
      std::memcpy(&second, &upper, sizeof second);
    } else if constexpr (std::is_same_v<T, Wide<T>>) {
      std::memcpy(&first, from, sizeof first);
      std::memcpy(&second, from + kHalf, sizeof second);
    } else {
      Wide<T> lanes[kChunk];
      for (int l = 0; l < kChunk; ++l) lanes[l] = Load(from[l]);
      std::memcpy(&first, lanes, sizeof first);
      std::memcpy(&second, lanes + kHalf, sizeof second);
    }
  }
};

template <typename T>
struct Factors {
  const T* x;
  const Wide<T>* chunks;  // of x, halves one after the other
  std::int64_t width;
};

// y[r * apart] = weight[r * apart] x for kCount rows. Sums do not depend on kCount.
template <int kCount, typename T>
MUSTER_INLINE void SumRows(const Factors<T>& by, const T* weight, std::int64_t apart, T* y) {
  Vector<Wide<T>> sums[kCount] = {};
  const std::int64_t whole = by.width - by.width % kChunk;
  for (std::int64_t i = 0; i < whole; i += kChunk) {
    const Chunk<Wide<T>> x(by.chunks + i);
#pragma GCC unroll 8
    for (int r = 0; r < kCount; ++r) {
      const Chunk<T> row(weight + r * apart * by.width + i);
      sums[r] += x.first * row.first;
      sums[r] += x.second * row.second;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kCount; ++r) {
    Wide<T> rest = 0;
    for (std::int64_t i = whole; i < by.width; ++i)
      rest += Load(by.x[i]) * Load(weight[r * apart * by.width + i]);
    for (int half = kHalf / 2; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) sums[r][l] += sums[r][l + half];
    }
    Store(y + r * apart, sums[r][0] + rest);
  }
}

// Columns of x in pairs, so that a vector of a processor with 512 bits is full and each sum is
// still made in the lanes and the order of SumRows.
template <typename Real>
using Pair = typename LanesOf<Real, 2 * kHalf>::Type;

// A chunk of a row of the weights, for both columns of a pair. Of bf16 what was read is doubled
// before it is widened: a load does that by itself.
template <typename T>
struct ChunkTwice {
  Pair<Wide<T>> first, second;

  MUSTER_INLINE explicit ChunkTwice(const T* from) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      Vector<std::uint32_t> once;
      std::memcpy(&once, from, sizeof once);
      const Pair<std::uint32_t> twice =
          __builtin_shufflevector(once, once, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
      const Pair<std::uint32_t> lower = twice << 16, upper = twice & 0xffff0000u;
      std::memcpy(&first, &lower, sizeof first);
      std::memcpy(&second, &upper, sizeof second);
    } else {
      const Chunk<T> once(from);
      first = __builtin_shufflevector(once.first, once.first, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4,
                                      5, 6, 7);
      second = __builtin_shufflevector(once.second, once.second, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3,
                                       4, 5, 6, 7);
    }
  }
};

constexpr int kTileRows = 4;
constexpr int kTilePairs = 4;

// x [count, width] as Tile reads it: pair by pair of columns, for each chunk both first halves,
// then both second ones; a last single column is its own neighbour.
template <typename T>
MUSTER_INLINE std::vector<Wide<T>> PairsOf(const ProductRows& p) {
  const auto* x = static_cast<const T*>(p.x);
  std::vector<Wide<T>> pairs(static_cast<std::size_t>((p.count + 1) / 2 * 2 * p.width));
  Wide<T>* to = pairs.data();
  for (std::int64_t column = 0; column < p.count; column += 2) {
    const T* left = x + column * p.width;
    const T* right = x + std::min(column + 1, p.count - 1) * p.width;
    for (std::int64_t i = 0; i < p.width; i += kChunk, to += 2 * kChunk) {
      const Chunk<T> a(left + i), b(right + i);
      std::memcpy(to, &a.first, sizeof a.first);
      std::memcpy(to + kHalf, &b.first, sizeof b.first);
      std::memcpy(to + 2 * kHalf, &a.second, sizeof a.second);
      std::memcpy(to + 3 * kHalf, &b.second, sizeof b.second);
    }
  }
  return pairs;
}

// y[column][r * apart] for kRows rows of the weights and `columns` of the 2 * kPairs columns of x.
template <int kRows, int kPairs, typename T>
MUSTER_INLINE void SumTile(const ProductRows& p, const Wide<T>* pairs, const T* weight,
                           std::int64_t apart, T* y, std::int64_t columns) {
  Pair<Wide<T>> sums[kRows][kPairs] = {};
  for (std::int64_t i = 0; i < p.width; i += kChunk) {
    // One by one: an array that is copied at once would lie in memory.
    Pair<Wide<T>> first[kPairs], second[kPairs];
#pragma GCC unroll 8
    for (int c = 0; c < kPairs; ++c) {
      const Wide<T>* x = pairs + 2 * (c * p.width + i);
      std::memcpy(&first[c], x, sizeof first[c]);
      std::memcpy(&second[c], x + 2 * kHalf, sizeof second[c]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const ChunkTwice<T> row(weight + r * apart * p.width + i);
#pragma GCC unroll 8
      for (int c = 0; c < kPairs; ++c) {
        sums[r][c] += first[c] * row.first;
        sums[r][c] += second[c] * row.second;
      }
    }
  }
  // By constant indices, since sums that a variable one reaches would lie in memory all the time.
  Wide<T> lanes[kRows][2 * kPairs][kHalf];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kPairs; ++c) std::memcpy(lanes[r][2 * c], &sums[r][c], sizeof sums[r][c]);
  }
  for (std::int64_t column = 0; column < columns; ++column) {
    for (int r = 0; r < kRows; ++r) {
      Wide<T>* of = lanes[r][column];
      for (int half = kHalf / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; ++l) of[l] += of[l + half];
      }
      Store(y + column * p.rows + r * apart, of[0]);
    }
  }
}

// Some rows of the weights by all columns: they stay in the first-level cache meanwhile.
template <int kRows, typename T>
MUSTER_INLINE void SumColumns(const ProductRows& p, const Wide<T>* pairs, std::int64_t row,
                              std::int64_t apart) {
  const T* weight = static_cast<const T*>(p.weight) + row * p.width;
  T* y = static_cast<T*>(p.y) + row;
  std::int64_t column = 0;
  for (; column + 2 * kTilePairs <= p.count; column += 2 * kTilePairs) {
    SumTile<kRows, kTilePairs>(p, pairs + column * p.width, weight, apart, y + column * p.rows,
                               2 * kTilePairs);
  }
  for (; column < p.count; column += 2) {
    SumTile<kRows, 1>(p, pairs + column * p.width, weight, apart, y + column * p.rows,
                      std::min<std::int64_t>(2, p.count - column));
  }
}

MUSTER_VECTOR_CLONES
void OneColumn(const ProductRows& p, std::int64_t begin, std::int64_t end) {
  WithElement(p.type, [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const auto* x = static_cast<const T*>(p.x);
    const auto* weight = static_cast<const T*>(p.weight);
    auto* y = static_cast<T*>(p.y);
    std::vector<Wide<T>> chunks(static_cast<std::size_t>(p.width));
    for (std::int64_t i = 0; i + kChunk <= p.width; i += kChunk) {
      const Chunk<T> chunk(x + i);
      std::memcpy(chunks.data() + i, &chunk, sizeof chunk);
    }
    const Factors<T> by{.x = x, .chunks = chunks.data(), .width = p.width};
    const std::int64_t apart = (end - begin) / kStreams;
    for (std::int64_t row = begin; row < begin + apart; ++row)
      SumRows<kStreams>(by, weight + row * p.width, apart, y + row);
    for (std::int64_t row = begin + apart * kStreams; row < end; ++row)
      SumRows<1>(by, weight + row * p.width, apart, y + row);
  });
}

MUSTER_VECTOR_CLONES
void SeveralColumns(const ProductRows& p, std::int64_t begin, std::int64_t end) {
  WithElement(p.type, [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const std::vector<Wide<T>> pairs = PairsOf<T>(p);
    const std::int64_t apart = (end - begin) / kTileRows;
    for (std::int64_t row = begin; row < begin + apart; ++row)
      SumColumns<kTileRows, T>(p, pairs.data(), row, apart);
    for (std::int64_t row = begin + apart * kTileRows; row < end; ++row)
      SumColumns<1, T>(p, pairs.data(), row, apart);
  });
}

}  // namespace

void RowProduct(const ProductRows& p, std::int64_t begin, std::int64_t end) {
  if (p.count > 1 && p.width % kChunk == 0) {
    SeveralColumns(p, begin, end);
    return;
  }
  ProductRows column = p;
  const auto size = static_cast<std::int64_t>(ElementSize(p.type));
  for (std::int64_t i = 0; i < p.count; ++i) {
    column.x = static_cast<const std::byte*>(p.x) + i * p.width * size;
    column.y = static_cast<std::byte*>(p.y) + i * p.rows * size;
    OneColumn(column, begin, end);
  }
}

}  // namespace muster
