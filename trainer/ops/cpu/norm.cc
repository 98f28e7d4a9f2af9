#include "trainer/ops/cpu/norm.h"

#include <algorithm>
#include <cmath>

#include "trainer/core/vector_clones.h"
#include "trainer/core/vector_math.h"

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
MUSTER_INLINE Wide<T> ScaleOf(const T* x, std::int64_t width, double eps) {
  using Real = Wide<T>;
  const Real squares =
      SumOver<Real>(width, [x](std::int64_t i) { return Load(x[i]) * Load(x[i]); });
  const Real mean = squares / static_cast<Real>(width);
  return Real(1) / std::sqrt(mean + static_cast<Real>(eps));
}

template <typename T>
MUSTER_INLINE void AddNormRows(const NormRows<T>& n, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * n.width;
    T* sum = n.sum + at;
    if (n.delta != nullptr) {
      Add(n.x + at, n.delta + at, sum, n.width);
    } else if (n.sum != n.x) {
      std::copy_n(n.x + at, n.width, sum);
    }
    const Wide<T> scale = ScaleOf(sum, n.width, n.eps);
    n.scale[row] = scale;
    ApplyNorm(sum, n.weight, scale, n.y + at, n.width);
  }
}

template <typename T>
MUSTER_INLINE void RecomputeRmsNormRows(const NormRows<T>& n, std::int64_t begin,
                                        std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * n.width;
    ApplyNorm(n.sum + at, n.weight, n.scale[row], n.y + at, n.width);
  }
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

// dx = (dx where kAdd +) the gradient of the row; dx may be dy, element for element.
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

template <typename T>
MUSTER_INLINE void BackwardRows(const NormBackwardRows<T>& n, std::int64_t begin,
                                std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * n.width;
    const T* const x = n.sum + at;
    const T* const dy = n.y_gradient + at;
    T* const dx = n.gradient + at;
    if (n.weight_gradient != nullptr) {
      RowGradient<true, true>(x, n.weight, n.scale[row], dy, dx, n.weight_gradient, n.width);
    } else {
      RowGradient<true, false>(x, n.weight, n.scale[row], dy, dx, n.weight_gradient, n.width);
    }
  }
}

template <typename T>
MUSTER_INLINE void QkNormOf(const QkNormRows<T>& n, std::int64_t begin, std::int64_t end) {
  const std::int64_t normed = n.heads + n.kv_heads, values = n.kv_heads * n.head_dim;
  const std::int64_t width = normed * n.head_dim + values;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = n.joined + row * width;
    T* y = n.out + row * width;
    for (std::int64_t head = 0; head < normed; ++head, x += n.head_dim, y += n.head_dim) {
      const Wide<T> scale = ScaleOf(x, n.head_dim, n.eps);
      n.scale[row * normed + head] = scale;
      ApplyNorm(x, head < n.heads ? n.query_weight : n.key_weight, scale, y, n.head_dim);
    }
    std::copy_n(x, values, y);
  }
}

template <typename T>
MUSTER_INLINE void HeadBackwardRows(const QkNormBackwardRows<T>& n, std::int64_t begin,
                                    std::int64_t end) {
  const std::int64_t normed = n.heads + n.kv_heads;
  const std::int64_t width = (normed + n.kv_heads) * n.head_dim;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = n.joined + row * width;
    T* dy = n.gradient + row * width;
    const Wide<T>* scale = n.scale + row * normed;
    for (std::int64_t head = 0; head < normed; ++head, x += n.head_dim, dy += n.head_dim) {
      const bool query = head < n.heads;
      const T* const weight = query ? n.query_weight : n.key_weight;
      Wide<T>* const to = query ? n.query_weight_gradient : n.key_weight_gradient;
      if (to != nullptr) {
        RowGradient<false, true>(x, weight, scale[head], dy, dy, to, n.head_dim);
      } else {
        RowGradient<false, false>(x, weight, scale[head], dy, dy, to, n.head_dim);
      }
    }
  }
}

}  // namespace

MUSTER_ROWS_KERNEL(AddNorm, NormRows, AddNormRows)
MUSTER_ROWS_KERNEL(RecomputeRmsNorm, NormRows, RecomputeRmsNormRows)
MUSTER_ROWS_KERNEL(NormBackward, NormBackwardRows, BackwardRows)
MUSTER_ROWS_KERNEL(QkNorm, QkNormRows, QkNormOf)
MUSTER_ROWS_KERNEL(QkNormBackward, QkNormBackwardRows, HeadBackwardRows)

}  // namespace muster
