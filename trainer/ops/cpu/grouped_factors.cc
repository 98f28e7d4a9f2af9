#include "trainer/ops/cpu/grouped_factors.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "trainer/ops/cpu/cpu_features.h"
#include "trainer/ops/cpu/kernel.h"

namespace muster {
namespace {

constexpr int kLanes = 16;

template <typename Real>
struct LanesOf {
  using Type __attribute__((vector_size(kLanes * sizeof(Real)))) = Real;
};
template <typename Real>
using Lanes = typename LanesOf<Real>::Type;

// A tile of sums: kRows rows of kVectors * kLanes columns. They fit the registers of a processor
// with 512 bits, or of one with 256.
template <int kRowCount, int kVectorCount>
struct TileShape {
  static constexpr int kRows = kRowCount, kVectors = kVectorCount;
  static constexpr int kColumns = kVectors * kLanes;
};
constexpr int kMostRows = 8, kMostColumns = 2 * kLanes;

template <typename F>
MUSTER_INLINE void WithTile(const F& f) {
  ThisCpu().avx512 ? f(TileShape<kMostRows, 2>()) : f(TileShape<4, 1>());
}

// Whether a tile starts from what is there.
enum class Sums { kNew, kAdded };

// to[r * to_row + column] (+)= the sum over k of a[r * row + k * step] * b[k * b_step + column]
template <typename Shape, Sums kSums, typename Real>
MUSTER_INLINE void SumTile(const Real* a, std::int64_t row, std::int64_t step, const Real* b,
                           std::int64_t b_step, std::int64_t depth, Real* to, std::int64_t to_row) {
  Lanes<Real> sums[Shape::kRows][Shape::kVectors] = {};
  if constexpr (kSums == Sums::kAdded) {
#pragma GCC unroll 8
    for (int r = 0; r < Shape::kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < Shape::kVectors; ++v)
        std::memcpy(&sums[r][v], to + r * to_row + v * kLanes, sizeof sums[r][v]);
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    Lanes<Real> columns[Shape::kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < Shape::kVectors; ++v)
      std::memcpy(&columns[v], b + k * b_step + v * kLanes, sizeof columns[v]);
#pragma GCC unroll 8
    for (int r = 0; r < Shape::kRows; ++r) {
      const Real factor = a[r * row + k * step];
#pragma GCC unroll 8
      for (int v = 0; v < Shape::kVectors; ++v) sums[r][v] += factor * columns[v];
    }
  }
  // By constant indices, since sums that a variable one reaches would lie in memory all the time.
#pragma GCC unroll 8
  for (int r = 0; r < Shape::kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < Shape::kVectors; ++v)
      std::memcpy(to + r * to_row + v * kLanes, &sums[r][v], sizeof sums[r][v]);
  }
}

// Calls f(group, first, count) for the groups that have rows within [begin, end): these rows.
template <typename F>
MUSTER_INLINE void ForEachGroup(const GroupedRows& rows, std::int64_t begin, std::int64_t end,
                                const F& f) {
  const auto after = std::upper_bound(rows.begins.begin(), rows.begins.end(), begin);
  for (auto group = after - rows.begins.begin() - 1; begin < end; ++group) {
    const std::int64_t last = std::min(end, rows.begins[static_cast<std::size_t>(group) + 1]);
    if (last > begin) f(group, begin, last - begin);
    begin = std::max(begin, last);
  }
}

constexpr std::int64_t Padded(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

// A matrix [height, width], of which the element in row i and column k is from[i * row + k *
// column], widened; and where it goes to, likewise. In blocks, one of the two is read or written
// along its rows.
template <typename T>
MUSTER_INLINE void Widen(const T* from, std::int64_t row, std::int64_t column, std::int64_t height,
                         std::int64_t width, Wide<T>* to, std::int64_t to_row,
                         std::int64_t to_column) {
  for (std::int64_t block = 0; block < width; block += kLanes) {
    const std::int64_t end = std::min(width, block + kLanes);
    for (std::int64_t i = 0; i < height; ++i) {
      for (std::int64_t k = block; k < end; ++k)
        to[i * to_row + k * to_column] = Load(from[i * row + k * column]);
    }
  }
}

// `count` rows of `width` elements each, one behind the other, widened.
template <typename T>
MUSTER_INLINE void WidenRows(const T* __restrict from, std::int64_t count, Wide<T>* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = Load(from[i]);
}

// Of so many columns of a factor at a time, and rows: these stay in the first-level cache while the
// rows go by.
constexpr std::int64_t kPartColumns = 256, kPartRows = 64;

template <typename Shape, typename T>
MUSTER_INLINE void Hidden(const GroupedRows& rows, const T* x, const T* factors,
                          const FactorLayout& layout, T* hidden, std::int64_t begin,
                          std::int64_t end) {
  using Real = Wide<T>;
  const std::int64_t width = rows.width, rank = rows.rank, lanes = Padded(rank, kLanes);
  const Real scale = static_cast<Real>(rows.scale);
  std::vector<Real> factor(static_cast<std::size_t>(width * lanes));
  std::vector<Real> sums(static_cast<std::size_t>(kPartRows * lanes));
  Real tile[kMostRows * kPartColumns];
  ForEachGroup(
      rows, begin, end, [&](auto group, std::int64_t first, std::int64_t count) MUSTER_INLINE_CALL {
        Widen(factors + group * layout.group, layout.row, layout.column, rank, width, factor.data(),
              1, lanes);
        for (const std::int64_t last = first + count; first < last; first += kPartRows) {
          const std::int64_t some = std::min(kPartRows, last - first);
          std::fill(sums.begin(), sums.end(), Real{0});
          for (std::int64_t c = 0; c < width; c += kPartColumns) {
            const std::int64_t columns = std::min(kPartColumns, width - c);
            for (std::int64_t row = 0; row < some; row += Shape::kRows) {
              const Real* from = tile;
              std::int64_t apart = kPartColumns;
              if constexpr (std::is_same_v<T, Real>) {
                if (row + Shape::kRows <= some) {
                  from = x + (first + row) * width + c;
                  apart = width;
                }
              }
              if (from == tile) {
                for (std::int64_t r = row; r < std::min(some, row + Shape::kRows); ++r)
                  WidenRows(x + (first + r) * width + c, columns, tile + (r - row) * kPartColumns);
              }
              for (std::int64_t j = 0; j < lanes; j += kLanes) {
                SumTile<TileShape<Shape::kRows, 1>, Sums::kAdded>(
                    from, apart, 1, factor.data() + c * lanes + j, lanes, columns,
                    sums.data() + row * lanes + j, lanes);
              }
            }
          }
          for (std::int64_t row = 0; row < some; ++row) {
            for (std::int64_t j = 0; j < rank; ++j)
              Store(&hidden[(first + row) * rank + j],
                    scale * sums[static_cast<std::size_t>(row * lanes + j)]);
          }
        }
      });
}

template <typename Shape, typename T>
MUSTER_INLINE void AddOutput(const GroupedRows& rows, const T* hidden, const T* factors,
                             const FactorLayout& layout, T* y, std::int64_t begin,
                             std::int64_t end) {
  using Real = Wide<T>;
  const std::int64_t width = rows.width, rank = rows.rank;
  const std::int64_t padded = Padded(width, Shape::kColumns);
  const Real scale = static_cast<Real>(rows.scale);
  std::vector<Real> factor(static_cast<std::size_t>(rank * padded));
  std::vector<Real> tile(static_cast<std::size_t>(Shape::kRows * rank));
  Real sums[kMostRows][kMostColumns];
  ForEachGroup(
      rows, begin, end, [&](auto group, std::int64_t first, std::int64_t count) MUSTER_INLINE_CALL {
        Widen(factors + group * layout.group, layout.row, layout.column, rank, width, factor.data(),
              padded, 1);
        for (std::int64_t row = first; row < first + count; row += Shape::kRows) {
          const std::int64_t some = std::min<std::int64_t>(Shape::kRows, first + count - row);
          WidenRows(hidden + row * rank, some * rank, tile.data());
          for (std::int64_t c = 0; c < width; c += Shape::kColumns) {
            SumTile<Shape, Sums::kNew>(tile.data(), rank, 1, factor.data() + c, padded, rank,
                                       sums[0], kMostColumns);
            const std::int64_t columns = std::min<std::int64_t>(Shape::kColumns, width - c);
            for (std::int64_t r = 0; r < some; ++r) {
              T* __restrict out = y + (row + r) * width + c;
              for (std::int64_t l = 0; l < columns; ++l)
                Store(&out[l], Load(out[l]) + scale * sums[r][l]);
            }
          }
        }
      });
}

// Where the gradients of factors go.
template <typename T>
struct GradientStore {
  const FactorGradients& gradients;
  Wide<T> scale;

  // The columns from `column` on of one row.
  MUSTER_INLINE void operator()(std::int64_t group, std::int64_t row, std::int64_t column,
                                std::int64_t count, const Wide<T>* sums) const {
    const FactorLayout& layout = gradients.layout;
    const std::int64_t at = group * layout.group + row * layout.row + column * layout.column;
    gradients.type == WideType(gradients.type)
        ? Put(static_cast<Wide<T>*>(gradients.to) + at, count, sums)
        : Put(static_cast<T*>(gradients.to) + at, count, sums);
  }
  template <typename To>
  MUSTER_INLINE void Put(To* to, std::int64_t count, const Wide<T>* sums) const {
    const std::int64_t apart = gradients.layout.column;
    for (std::int64_t i = 0; i < count; ++i) {
      To* at = to + i * apart;
      Store(at, gradients.add ? Load(*at) + scale * sums[i] : scale * sums[i]);
    }
  }
};

// So many rows and columns of x are widened at a time, which stay in the second-level cache until
// they have been summed up.
constexpr std::int64_t kBlockRows = 32, kBlockColumns = 512;

// The sums over a group's rows of the columns [begin, begin + columns).
template <typename Shape, typename T>
class BlockSums {
 public:
  using Real = Wide<T>;

  MUSTER_INLINE BlockSums(std::int64_t rank, std::int64_t columns)
      : rank_(Padded(rank, Shape::kRows)),
        columns_(Padded(columns, Shape::kColumns)),
        sums_(static_cast<std::size_t>(rank_ * columns_)),
        hidden_(static_cast<std::size_t>(kBlockRows * rank_)),
        x_(static_cast<std::size_t>(kBlockRows * columns_)) {}

  MUSTER_INLINE void Clear() { std::fill(sums_.begin(), sums_.end(), Real{0}); }
  // Of kBlockRows rows at most; x is their first element of these columns.
  MUSTER_INLINE void Add(const T* hidden, std::int64_t rank, const T* x, std::int64_t width,
                         std::int64_t columns, std::int64_t count) {
    for (std::int64_t row = 0; row < count; ++row) {
      WidenRows(hidden + row * rank, rank, hidden_.data() + row * rank_);
      const T* from = x + row * width;
      Real* to = x_.data() + row * Shape::kColumns;
      std::int64_t c = 0;
      for (; c + Shape::kColumns <= columns; c += Shape::kColumns)
        WidenRows(from + c, Shape::kColumns, to + c * kBlockRows);
      if (c < columns) WidenRows(from + c, columns - c, to + c * kBlockRows);
    }
    for (std::int64_t c = 0; c < columns_; c += Shape::kColumns) {
      for (std::int64_t j = 0; j < rank_; j += Shape::kRows) {
        SumTile<Shape, Sums::kAdded>(hidden_.data() + j, 1, rank_, x_.data() + c * kBlockRows,
                                     Shape::kColumns, count, sums_.data() + j * columns_ + c,
                                     columns_);
      }
    }
  }
  MUSTER_INLINE const Real* row(std::int64_t row) const { return sums_.data() + row * columns_; }

 private:
  std::int64_t rank_, columns_;
  std::vector<Real> sums_;    // [rank_, columns_]
  std::vector<Real> hidden_;  // [kBlockRows, rank_]
  std::vector<Real> x_;       // tile by tile of columns, [kBlockRows, a tile's]
};

template <typename Shape, typename T>
MUSTER_INLINE void Gradients(const GroupedRows& rows, const T* hidden, const T* x,
                             const FactorGradients& gradients, std::int64_t begin,
                             std::int64_t end) {
  const std::int64_t width = rows.width, rank = rows.rank;
  const auto groups = static_cast<std::int64_t>(rows.begins.size()) - 1;
  const GradientStore<T> store{gradients, static_cast<Wide<T>>(rows.scale)};
  for (std::int64_t c = begin; c < end; c += kBlockColumns) {
    const std::int64_t columns = std::min(kBlockColumns, end - c);
    BlockSums<Shape, T> sums(rank, columns);
    for (std::int64_t group = 0; group < groups; ++group) {
      const std::int64_t first = rows.begins[static_cast<std::size_t>(group)],
                         last = rows.begins[static_cast<std::size_t>(group) + 1];
      sums.Clear();
      for (std::int64_t row = first; row < last; row += kBlockRows) {
        sums.Add(hidden + row * rank, rank, x + row * width + c, width, columns,
                 std::min(kBlockRows, last - row));
      }
      for (std::int64_t j = 0; j < rank; ++j) store(group, j, c, columns, sums.row(j));
    }
  }
}

// Calls f(shape, element) with the tile for this machine and a null pointer of the elements' type.
template <typename F>
MUSTER_INLINE void WithTileAndElement(ElementType type, const F& f) {
  WithElement(type, [&]<typename T>(T* element) MUSTER_INLINE_CALL {
    WithTile([&](auto shape) MUSTER_INLINE_CALL { f(shape, element); });
  });
}

MUSTER_VECTOR_CLONES
void HiddenOf(const GroupedRows& rows, const void* x, const void* factors,
              const FactorLayout& layout, void* hidden, std::int64_t begin, std::int64_t end) {
  WithTileAndElement(rows.type, [&]<typename Shape, typename T>(Shape, T*) MUSTER_INLINE_CALL {
    Hidden<Shape>(rows, static_cast<const T*>(x), static_cast<const T*>(factors), layout,
                  static_cast<T*>(hidden), begin, end);
  });
}

MUSTER_VECTOR_CLONES
void AddOutputOf(const GroupedRows& rows, const void* hidden, const void* factors,
                 const FactorLayout& layout, void* y, std::int64_t begin, std::int64_t end) {
  WithTileAndElement(rows.type, [&]<typename Shape, typename T>(Shape, T*) MUSTER_INLINE_CALL {
    AddOutput<Shape>(rows, static_cast<const T*>(hidden), static_cast<const T*>(factors), layout,
                     static_cast<T*>(y), begin, end);
  });
}

MUSTER_VECTOR_CLONES
void GradientsOf(const GroupedRows& rows, const void* hidden, const void* x,
                 const FactorGradients& gradients, std::int64_t begin, std::int64_t end) {
  WithTileAndElement(rows.type, [&]<typename Shape, typename T>(Shape, T*) MUSTER_INLINE_CALL {
    Gradients<Shape>(rows, static_cast<const T*>(hidden), static_cast<const T*>(x), gradients,
                     begin, end);
  });
}

}  // namespace

void GroupedHidden(const GroupedRows& rows, const void* x, const void* factors,
                   const FactorLayout& layout, void* hidden) {
  OverRows(rows.begins.back(), rows.width * rows.rank,
           [&](auto begin, auto end) { HiddenOf(rows, x, factors, layout, hidden, begin, end); });
}

void AddGroupedOutput(const GroupedRows& rows, const void* hidden, const void* factors,
                      const FactorLayout& layout, void* y) {
  OverRows(rows.begins.back(), rows.width * rows.rank, [&](auto begin, auto end) {
    AddOutputOf(rows, hidden, factors, layout, y, begin, end);
  });
}

void GroupedFactorGradients(const GroupedRows& rows, const void* hidden, const void* x,
                            const FactorGradients& gradients) {
  const std::int64_t tiles = Padded(rows.width, kMostColumns) / kMostColumns;
  OverRows(tiles, rows.begins.back() * rows.rank * kMostColumns, [&](auto begin, auto end) {
    GradientsOf(rows, hidden, x, gradients, begin * kMostColumns,
                std::min<std::int64_t>(rows.width, end * kMostColumns));
  });
}

}  // namespace muster
