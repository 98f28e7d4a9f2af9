#include "trainer/ops/cpu/row_product.h"

#include "trainer/core/vector_clones.h"
#include "trainer/core/vector_math.h"

namespace muster {
namespace {

// So far ahead of the sum that memory answers in time; processors stop looking ahead themselves
// where a page ends.
constexpr std::int64_t kAheadBytes = 4096;
constexpr std::int64_t kLineBytes = 64;

template <typename T>
MUSTER_INLINE void ProductOfRows(const ProductRows<T>& p, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* weight = p.weight + row * p.width;
    const auto* ahead = reinterpret_cast<const char*>(weight) + kAheadBytes;
    const std::int64_t bytes = p.width * static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(ahead + at, 0, 0);
    Store(&p.y[row],
          SumOver<Wide<T>>(p.width, [&](std::int64_t i) { return p.x[i] * Load(weight[i]); }));
  }
}

}  // namespace

MUSTER_ROWS_KERNEL(RowProduct, ProductRows, ProductOfRows)

}  // namespace muster
