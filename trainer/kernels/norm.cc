#include "trainer/kernels/norm.h"

#include <algorithm>
#include <cmath>

#include "trainer/kernels/vector_clones.h"
#include "trainer/kernels/vector_math.h"

namespace muster {
namespace {

template <typename T>
MUSTER_INLINE void Add(const T* x, const T* delta, T* sum, std::int64_t width) {
  // `sum` may be `x`, element for element.
#pragma GCC ivdep
  for (std::int64_t i = 0; i < width; ++i) Store(&sum[i], Load(x[i]) + Load(delta[i]));
}

template <typename T>
MUSTER_INLINE void ApplyNorm(const T* __restrict x, const T* __restrict weight, Wide<T> scale,
                             T* __restrict y, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) {
    Store(&y[i], Load(weight[i]) * Rounded<T>(Load(x[i]) * scale));
  }
}

template <typename T>
MUSTER_INLINE void AddNormRows(const NormRows<T>& n, std::int64_t begin, std::int64_t end) {
  using Real = Wide<T>;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * n.width;
    T* sum = n.sum + at;
    if (n.delta != nullptr) {
      Add(n.x + at, n.delta + at, sum, n.width);
    } else if (n.sum != n.x) {
      std::copy_n(n.x + at, n.width, sum);
    }
    const Real squares =
        SumOver<Real>(n.width, [sum](std::int64_t i) { return Load(sum[i]) * Load(sum[i]); });
    const Real mean = squares / static_cast<Real>(n.width);
    const Real scale = Real(1) / std::sqrt(mean + static_cast<Real>(n.eps));
    n.scale[row] = scale;
    ApplyNorm(sum, n.weight, scale, n.y + at, n.width);
  }
}

template <typename T>
MUSTER_INLINE void NormAgainRows(const NormRows<T>& n, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * n.width;
    ApplyNorm(n.sum + at, n.weight, n.scale[row], n.y + at, n.width);
  }
}

template <typename T>
MUSTER_INLINE void BackwardRows(const NormBackwardRows<T>& n, std::int64_t begin,
                                std::int64_t end) {
  using Real = Wide<T>;
  const T* __restrict weight = n.weight;
  Real* __restrict weight_gradient = n.weight_gradient;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* __restrict x = n.sum + row * n.width;
    const T* __restrict dy = n.y_gradient + row * n.width;
    T* __restrict dx = n.gradient + row * n.width;
    const Real scale = n.scale[row];
    const Real product = SumOver<Real>(n.width, [x, dy, weight](std::int64_t i) {
      return Load(dy[i]) * Load(weight[i]) * Load(x[i]);
    });
    const Real along = product * scale * scale * scale / static_cast<Real>(n.width);
    for (std::int64_t i = 0; i < n.width; ++i) {
      const Real value = Load(x[i]);
      const Real scaled = Load(dy[i]) * scale;
      weight_gradient[i] += scaled * value;
      Store(&dx[i], Load(dx[i]) + (scaled * Load(weight[i]) - value * along));
    }
  }
}

}  // namespace

MUSTER_ROWS_KERNEL(AddNorm, NormRows, AddNormRows)
MUSTER_ROWS_KERNEL(NormAgain, NormRows, NormAgainRows)
MUSTER_ROWS_KERNEL(NormBackward, NormBackwardRows, BackwardRows)

}  // namespace muster
