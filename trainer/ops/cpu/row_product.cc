#include "trainer/ops/cpu/row_product.h"

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

template <typename Real>
struct VectorOf {
  using Type __attribute__((vector_size(kHalf * sizeof(Real)))) = Real;
};
template <typename Real>
using Vector = typename VectorOf<Real>::Type;

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

}  // namespace

MUSTER_VECTOR_CLONES
void RowProduct(const ProductRows& p, std::int64_t begin, std::int64_t end) {
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

}  // namespace muster
