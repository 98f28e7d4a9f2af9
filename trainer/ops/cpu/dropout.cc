#include "trainer/ops/dropout.h"

#include "trainer/ops/cpu/kernel.h"

namespace muster::op {
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

MUSTER_VECTOR_CLONES
void Rows(const Dropout& d, std::int64_t begin, std::int64_t end) {
  WithElement(d.x.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const std::int64_t width = d.x.width();
    const std::uint32_t threshold = DropoutThreshold(d.p);
    const auto scale = static_cast<Wide<T>>(1 / (1 - d.p));
    for (std::int64_t row = begin; row < end; ++row) {
      const DropoutKey key = PartOfKey(d.key, static_cast<std::uint64_t>(row));
      DropRow(d.x.data<T>() + row * width, key, threshold, scale, d.out.data<T>() + row * width,
              static_cast<std::int32_t>(width));
    }
  });
}

}  // namespace

void RunOnCpu(const Dropout& d) {
  OverRows(d.x.rows(), d.x.width(), [&](auto begin, auto end) { Rows(d, begin, end); });
}

}  // namespace muster::op

template void muster::CpuKernel<muster::op::Dropout>(const void*);
