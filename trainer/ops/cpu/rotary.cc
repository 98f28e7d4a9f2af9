#include "trainer/ops/cpu/rotary.h"

#include "trainer/core/vector_clones.h"

namespace muster {
namespace {

template <typename T>
MUSTER_INLINE void TurnHead(T* __restrict left, T* __restrict right, std::int64_t half,
                            const Wide<T>* __restrict cos, const Wide<T>* __restrict sin,
                            Wide<T> direction) {
  for (std::int64_t i = 0; i < half; ++i) {
    const Wide<T> a = Load(left[i]);
    const Wide<T> b = Load(right[i]);
    const Wide<T> s = sin[i] * direction;
    Store(&left[i], a * cos[i] - b * s);
    Store(&right[i], b * cos[i] + a * s);
  }
}

template <typename T>
MUSTER_INLINE void TurnRows(const RotaryRows<T>& r, std::int64_t begin, std::int64_t end) {
  const std::int64_t half = r.head_dim / 2;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t position = r.positions == nullptr ? row % r.length : r.positions[row];
    const std::int64_t angles = position * half;
    for (std::int64_t head = 0; head < r.heads; ++head) {
      T* left = r.joined + row * r.stride + head * r.head_dim;
      TurnHead(left, left + half, half, r.cos + angles, r.sin + angles,
               static_cast<Wide<T>>(r.direction));
    }
  }
}

}  // namespace

MUSTER_ROWS_KERNEL(ApplyRope, RotaryRows, TurnRows)

}  // namespace muster
