#include "trainer/ops/cpu/dropout.h"

#include "trainer/core/vector_clones.h"

namespace muster {
namespace {

template <typename T>
MUSTER_INLINE void DropRow(const T* x, DropoutKey row, std::uint32_t threshold, Wide<T> scale,
                           T* out, std::int32_t width) {
  // `out` may be `x`, element for element.
#pragma GCC ivdep
  for (std::int32_t i = 0; i < width; ++i) {
    const bool counts = DropoutNumber(row, static_cast<std::uint32_t>(i)) >= threshold;
    const Wide<T> scaled = Load(x[i]) * scale;
    Store(&out[i], counts ? scaled : Wide<T>(0));
  }
}

template <typename T>
MUSTER_INLINE void DropRows(const DropoutRows<T>& d, std::int64_t begin, std::int64_t end) {
  const std::uint32_t threshold = DropoutThreshold(d.p);
  const auto scale = static_cast<Wide<T>>(1 / (1 - d.p));
  for (std::int64_t row = begin; row < end; ++row) {
    const DropoutKey key = PartOfKey(d.key, static_cast<std::uint64_t>(row));
    DropRow(d.x + row * d.width, key, threshold, scale, d.out + row * d.width,
            static_cast<std::int32_t>(d.width));
  }
}

}  // namespace

MUSTER_ROWS_KERNEL(Dropout, DropoutRows, DropRows)

}  // namespace muster
