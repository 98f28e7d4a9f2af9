#include "trainer/kernels/block_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "trainer/kernels/vector_clones.h"

namespace muster {
namespace {

// e^x to about one unit in the last place; a polynomial, so that loops over it are vectorised.
MUSTER_INLINE float Exp(float x) {
  x = std::min(88.0f, std::max(-87.0f, x));
  const float n = std::nearbyint(x * 1.44269504f);
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float value = p * r * r + r + 1.0f;
  const auto exponent = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23;
  return value * std::bit_cast<float>(exponent);
}

MUSTER_INLINE float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

constexpr int kLanes = 16;

// Sums in a fixed number of lanes: vectorised without permission to reorder.
struct Lanes {
  float sum[kLanes] = {};

  MUSTER_INLINE float Total() const {
    float total = 0;
    for (const float lane : sum) total += lane;
    return total;
  }
};

template <typename T>
MUSTER_INLINE float SumOfSquares(const T* x, std::int64_t width) {
  Lanes lanes;
  std::int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes.sum[l] += Load(x[i + l]) * Load(x[i + l]);
  }
  for (; i < width; ++i) lanes.sum[i % kLanes] += Load(x[i]) * Load(x[i]);
  return lanes.Total();
}

template <typename T>
MUSTER_INLINE float SumOfProducts(const T* a, const T* b, const T* c, std::int64_t width) {
  Lanes lanes;
  std::int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      lanes.sum[l] += Load(a[i + l]) * Load(b[i + l]) * Load(c[i + l]);
    }
  }
  for (; i < width; ++i) lanes.sum[i % kLanes] += Load(a[i]) * Load(b[i]) * Load(c[i]);
  return lanes.Total();
}

template <typename T>
MUSTER_INLINE void NormForwardRows(const NormRows<T>& n, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* __restrict x = n.x + row * n.width;
    T* __restrict y = n.y + row * n.width;
    const float mean = SumOfSquares(x, n.width) / static_cast<float>(n.width);
    const float scale = 1.0f / std::sqrt(mean + static_cast<float>(n.eps));
    n.scale[row] = scale;
    for (std::int64_t i = 0; i < n.width; ++i) {
      Store(&y[i], Load(n.weight[i]) * Rounded<T>(Load(x[i]) * scale));
    }
  }
}

template <typename T>
MUSTER_INLINE void NormBackwardRows(const NormRows<T>& n, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* __restrict x = n.x + row * n.width;
    const T* __restrict dy = n.y_gradient + row * n.width;
    T* __restrict dx = n.x_gradient + row * n.width;
    const float scale = n.scale[row];
    const float along = SumOfProducts(dy, n.weight, x, n.width) * scale * scale * scale /
                        static_cast<float>(n.width);
    for (std::int64_t i = 0; i < n.width; ++i) {
      Store(&dx[i], Load(dy[i]) * Load(n.weight[i]) * scale - Load(x[i]) * along);
    }
  }
}

template <typename T>
MUSTER_INLINE void NormWeightColumns(const NormRows<T>& n, std::int64_t count, std::int64_t begin,
                                     std::int64_t end, float* __restrict gradient) {
  for (std::int64_t i = begin; i < end; ++i) gradient[i] = 0;
  for (std::int64_t row = 0; row < count; ++row) {
    const T* __restrict x = n.x + row * n.width;
    const T* __restrict dy = n.y_gradient + row * n.width;
    const float scale = n.scale[row];
    for (std::int64_t i = begin; i < end; ++i) gradient[i] += Load(dy[i]) * Load(x[i]) * scale;
  }
}

template <typename T>
MUSTER_INLINE void GateForwardRows(const GateRows<T>& g, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* __restrict gate = g.gate_up + row * 2 * g.width;
    const T* __restrict up = g.gate_up + (row * 2 + 1) * g.width;
    T* __restrict out = g.out + row * g.width;
    for (std::int64_t i = 0; i < g.width; ++i) {
      const float x = Load(gate[i]);
      Store(&out[i], x * Sigmoid(x) * Load(up[i]));
    }
  }
}

template <typename T>
MUSTER_INLINE void GateBackwardRows(const GateRows<T>& g, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* __restrict gate = g.gate_up + row * 2 * g.width;
    const T* __restrict up = g.gate_up + (row * 2 + 1) * g.width;
    const T* __restrict dout = g.out_gradient + row * g.width;
    T* __restrict dgate = g.gate_up_gradient + row * 2 * g.width;
    T* __restrict dup = g.gate_up_gradient + (row * 2 + 1) * g.width;
    for (std::int64_t i = 0; i < g.width; ++i) {
      const float x = Load(gate[i]);
      const float s = Sigmoid(x);
      const float d = Load(dout[i]);
      const float dx = d * Load(up[i]) * s * (1.0f + x * (1.0f - s));
      Store(&dup[i], d * x * s);
      Store(&dgate[i], dx);
    }
  }
}

// Turns `count` heads by the angles, or back with direction -1.
template <typename T>
MUSTER_INLINE void Turn(const T* __restrict from, T* __restrict to, std::int64_t count,
                        std::int64_t half, const float* __restrict cos, const float* __restrict sin,
                        float direction) {
  for (std::int64_t head = 0; head < count; ++head) {
    const T* __restrict x = from + head * 2 * half;
    T* __restrict y = to + head * 2 * half;
    for (std::int64_t i = 0; i < half; ++i) {
      const float a = Load(x[i]);
      const float b = Load(x[i + half]);
      const float s = sin[i] * direction;
      Store(&y[i], a * cos[i] - b * s);
      Store(&y[i + half], b * cos[i] + a * s);
    }
  }
}

template <typename T>
MUSTER_INLINE void RotaryRowsForward(const RotaryRows<T>& r, std::int64_t begin, std::int64_t end) {
  const std::int64_t half = r.head_dim / 2;
  const std::int64_t query = r.heads * r.head_dim;
  const std::int64_t key = r.kv_heads * r.head_dim;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* joined = r.joined + row * (query + 2 * key);
    const float* cos = r.cos + row % r.length * half;
    const float* sin = r.sin + row % r.length * half;
    Turn(joined, r.query + row * query, r.heads, half, cos, sin, 1.0f);
    Turn(joined + query, r.key + row * key, r.kv_heads, half, cos, sin, 1.0f);
    std::copy_n(joined + query + key, key, r.value + row * key);
  }
}

template <typename T>
MUSTER_INLINE void RotaryRowsBackward(const RotaryRows<T>& r, std::int64_t begin,
                                      std::int64_t end) {
  const std::int64_t half = r.head_dim / 2;
  const std::int64_t query = r.heads * r.head_dim;
  const std::int64_t key = r.kv_heads * r.head_dim;
  for (std::int64_t row = begin; row < end; ++row) {
    T* joined = r.joined + row * (query + 2 * key);
    const float* cos = r.cos + row % r.length * half;
    const float* sin = r.sin + row % r.length * half;
    Turn(r.query + row * query, joined, r.heads, half, cos, sin, -1.0f);
    Turn(r.key + row * key, joined + query, r.kv_heads, half, cos, sin, -1.0f);
    std::copy_n(r.value + row * key, key, joined + query + key);
  }
}

}  // namespace

// Clones cannot be made of templates: one function per element type.
#define MUSTER_ROWS_KERNEL(Name, Rows, Body)                                    \
  MUSTER_VECTOR_CLONES                                                          \
  void Name(const Rows<float>& rows, std::int64_t begin, std::int64_t end) {    \
    Body(rows, begin, end);                                                     \
  }                                                                             \
  MUSTER_VECTOR_CLONES                                                          \
  void Name(const Rows<BFloat16>& rows, std::int64_t begin, std::int64_t end) { \
    Body(rows, begin, end);                                                     \
  }

MUSTER_ROWS_KERNEL(NormForward, NormRows, NormForwardRows)
MUSTER_ROWS_KERNEL(NormBackward, NormRows, NormBackwardRows)
MUSTER_ROWS_KERNEL(GateForward, GateRows, GateForwardRows)
MUSTER_ROWS_KERNEL(GateBackward, GateRows, GateBackwardRows)
MUSTER_ROWS_KERNEL(RotaryForward, RotaryRows, RotaryRowsForward)
MUSTER_ROWS_KERNEL(RotaryBackward, RotaryRows, RotaryRowsBackward)

MUSTER_VECTOR_CLONES
void NormWeightGradient(const NormRows<float>& rows, std::int64_t count, std::int64_t begin,
                        std::int64_t end, float* gradient) {
  NormWeightColumns(rows, count, begin, end, gradient);
}

MUSTER_VECTOR_CLONES
void NormWeightGradient(const NormRows<BFloat16>& rows, std::int64_t count, std::int64_t begin,
                        std::int64_t end, float* gradient) {
  NormWeightColumns(rows, count, begin, end, gradient);
}

}  // namespace muster
