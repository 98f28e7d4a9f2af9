#include "trainer/ops/cpu/gate.h"

#include "trainer/core/vector_clones.h"
#include "trainer/core/vector_math.h"

namespace muster {
namespace {

// Compilers believe __restrict of parameters, also after inlining.
template <typename T>
MUSTER_INLINE void Forward(const T* __restrict gate, const T* __restrict up, T* __restrict out,
                           std::int64_t width) {
  using Real = Wide<T>;
  for (std::int64_t i = 0; i < width; ++i) {
    const Real x = Load(gate[i]);
    const Real sigmoid = Real(1) / (Real(1) + Exp(-x));
    Store(&out[i], x * sigmoid * Load(up[i]));
  }
}

template <typename T>
MUSTER_INLINE void Backward(T* __restrict gate, T* __restrict up, const T* __restrict out_gradient,
                            T* __restrict out, std::int64_t width) {
  using Real = Wide<T>;
  for (std::int64_t i = 0; i < width; ++i) {
    const Real x = Load(gate[i]);
    const Real y = Load(up[i]);
    const Real d = Load(out_gradient[i]);
    const Real sigmoid = Real(1) / (Real(1) + Exp(-x));
    const Real silu = x * sigmoid;
    Store(&out[i], silu * y);
    Store(&up[i], d * silu);
    Store(&gate[i], d * y * (sigmoid + silu * (Real(1) - sigmoid)));
  }
}

template <typename T>
MUSTER_INLINE void ForwardRows(const GateRows<T>& g, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* gate = g.gate_up + row * 2 * g.width;
    Forward(gate, gate + g.width, g.out + row * g.width, g.width);
  }
}

template <typename T>
MUSTER_INLINE void BackwardRows(const GateRows<T>& g, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    T* gate = g.gate_up + row * 2 * g.width;
    Backward(gate, gate + g.width, g.out_gradient + row * g.width, g.out + row * g.width, g.width);
  }
}

}  // namespace

MUSTER_ROWS_KERNEL(SwiGlu, GateRows, ForwardRows)
MUSTER_ROWS_KERNEL(SwiGluBackward, GateRows, BackwardRows)

}  // namespace muster
