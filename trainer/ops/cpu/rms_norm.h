// RMS norm of one row, forward and backward: of the residual stream (norm.cc), or of a head
// (qk_norm.cc). For functions compiled for several instruction sets. No Torch.
#pragma once

#include <cmath>
#include <cstdint>

#include "trainer/core/element.h"
#include "trainer/core/vector_math.h"

namespace muster {

template <typename T>
MUSTER_INLINE void ApplyNorm(const T* __restrict x, const T* __restrict weight, Wide<T> scale,
                             T* __restrict y, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) {
    Store(&y[i], Load(weight[i]) * Rounded<T>(Load(x[i]) * scale));
  }
}

// 1 / rms of the row.
template <typename T>
MUSTER_INLINE Wide<T> ScaleOf(const T* x, std::int64_t width, double eps) {
  using Real = Wide<T>;
  const Real squares =
      SumOver<Real>(width, [x](std::int64_t i) { return Load(x[i]) * Load(x[i]); });
  const Real mean = squares / static_cast<Real>(width);
  return Real(1) / std::sqrt(mean + static_cast<Real>(eps));
}

// What a row's gradient has along the row itself, per unit of it.
template <typename T>
MUSTER_INLINE Wide<T> AlongRow(const T* x, const T* dy, const T* weight, Wide<T> scale,
                               std::int64_t width) {
  const Wide<T> product = SumOver<Wide<T>>(width, [x, dy, weight](std::int64_t i) {
    return Load(dy[i]) * Load(weight[i]) * Load(x[i]);
  });
  return product * scale * scale * scale / static_cast<Wide<T>>(width);
}

// dx = (dx where kAdd +) the gradient of the row; dx may be dy, element for element. The row's part
// of the weight's gradient is added where kTrained.
template <bool kAdd, bool kTrained, typename T>
MUSTER_INLINE void RowGradient(const T* __restrict x, const T* __restrict weight, Wide<T> scale,
                               const T* dy, T* dx, Wide<T>* __restrict weight_gradient,
                               std::int64_t width) {
  const Wide<T> along = AlongRow(x, dy, weight, scale, width);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < width; ++i) {
    const Wide<T> value = Load(x[i]);
    const Wide<T> scaled = Load(dy[i]) * scale;
    if constexpr (kTrained) weight_gradient[i] += scaled * value;
    const Wide<T> part = scaled * Load(weight[i]) - value * along;
    Store(&dx[i], kAdd ? Load(dx[i]) + part : part);
  }
}

}  // namespace muster
