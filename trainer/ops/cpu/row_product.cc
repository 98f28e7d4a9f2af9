#include "trainer/ops/cpu/row_product.h"

#include "trainer/core/vector_math.h"
#include "trainer/ops/cpu/kernel.h"

namespace muster {
namespace {

// So far ahead of the sum that memory answers in time; processors stop looking ahead themselves
// where a page ends.
constexpr std::int64_t kAheadBytes = 4096;
constexpr std::int64_t kLineBytes = 64;

}  // namespace

MUSTER_VECTOR_CLONES
void RowProduct(const ProductRows& p, std::int64_t begin, std::int64_t end) {
  WithElement(p.type, [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const auto* x = static_cast<const Wide<T>*>(p.x);
    const std::int64_t width = p.width, bytes = width * static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t row = begin; row < end; ++row) {
      const T* weight = static_cast<const T*>(p.weight) + row * width;
      const auto* ahead = reinterpret_cast<const char*>(weight) + kAheadBytes;
      for (std::int64_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(ahead + at, 0, 0);
      Store(static_cast<T*>(p.y) + row,
            SumOver<Wide<T>>(width, [=](std::int64_t i) { return x[i] * Load(weight[i]); }));
    }
  });
}

}  // namespace muster
