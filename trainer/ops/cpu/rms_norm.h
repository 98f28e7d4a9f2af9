// RMS norm of one row, forward and backward: of the residual stream (norm.cc), or of a head
// (qk_norm.cc). For functions compiled for several instruction sets. No Torch.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "trainer/core/element.h"
#include "trainer/core/vector_clones.h"
#include "trainer/core/vector_math.h"

namespace muster {

// What a weight multiplies by.
template <bool kZeroCentered, typename T>
MUSTER_INLINE Wide<T> GainOf(T weight) {
  return kZeroCentered ? Wide<T>(1) + Load(weight) : Load(weight);
}

template <bool kZeroCentered, typename T>
MUSTER_INLINE void ApplyNormOf(const T* __restrict x, const T* __restrict weight, Wide<T> scale,
                               T* __restrict y, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) {
    const Wide<T> normed = Load(x[i]) * scale;
    Store(&y[i], GainOf<kZeroCentered>(weight[i]) * (kZeroCentered ? normed : Rounded<T>(normed)));
  }
}

template <typename T>
MUSTER_INLINE void ApplyNorm(const T* x, const T* weight, bool zero_centered, Wide<T> scale, T* y,
                             std::int64_t width) {
  if (zero_centered) {
    ApplyNormOf<true>(x, weight, scale, y, width);
  } else {
    ApplyNormOf<false>(x, weight, scale, y, width);
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
template <bool kZeroCentered, typename T>
MUSTER_INLINE Wide<T> AlongRow(const T* x, const T* dy, const T* weight, Wide<T> scale,
                               std::int64_t width) {
  const Wide<T> product = SumOver<Wide<T>>(width, [x, dy, weight](std::int64_t i) {
    return Load(dy[i]) * GainOf<kZeroCentered>(weight[i]) * Load(x[i]);
  });
  return product * scale * scale * scale / static_cast<Wide<T>>(width);
}

template <bool kAdd, bool kTrained, bool kZeroCentered, typename T>
MUSTER_INLINE void RowGradientOf(const T* __restrict x, const T* __restrict weight, Wide<T> scale,
                                 const T* dy, T* dx, Wide<T>* __restrict weight_gradient,
                                 std::int64_t width) {
  const Wide<T> along = AlongRow<kZeroCentered>(x, dy, weight, scale, width);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < width; ++i) {
    const Wide<T> value = Load(x[i]);
    const Wide<T> scaled = Load(dy[i]) * scale;
    if constexpr (kTrained) weight_gradient[i] += scaled * value;
    const Wide<T> part = scaled * GainOf<kZeroCentered>(weight[i]) - value * along;
    Store(&dx[i], kAdd ? Load(dx[i]) + part : part);
  }
}

// dx = (dx where kAdd +) the gradient of the row; dx may be dy, element for element. The row's part
// of the weight's gradient is added to it, unless that is null.
template <bool kAdd, typename T>
MUSTER_INLINE void RowGradient(const T* x, const T* weight, bool zero_centered, Wide<T> scale,
                               const T* dy, T* dx, Wide<T>* weight_gradient, std::int64_t width) {
  const auto run = [&]<bool kZeroCentered>(std::bool_constant<kZeroCentered>) MUSTER_INLINE_CALL {
    if (weight_gradient != nullptr) {
      RowGradientOf<kAdd, true, kZeroCentered>(x, weight, scale, dy, dx, weight_gradient, width);
    } else {
      RowGradientOf<kAdd, false, kZeroCentered>(x, weight, scale, dy, dx, weight_gradient, width);
    }
  };
  zero_centered ? run(std::true_type()) : run(std::false_type());
}

}  // namespace muster
