#include "trainer/ops/weighted_swiglu.h"

#include "trainer/core/vector_math.h"
#include "trainer/ops/cpu/kernel.h"

namespace muster::op {
namespace {

template <typename T>
MUSTER_INLINE void Forward(const T* __restrict gate, const T* __restrict up, Wide<T> weight,
                           T* __restrict out, std::int64_t width) {
  using Real = Wide<T>;
  for (std::int64_t i = 0; i < width; ++i) {
    const Real x = Load(gate[i]);
    const Real sigmoid = Real(1) / (Real(1) + Exp(-x));
    Store(&out[i], weight * (x * sigmoid * Load(up[i])));
  }
}

// What the sum of out_gradient times the activation needs, before gate and up are overwritten.
template <typename T>
MUSTER_INLINE Wide<T> WeightGradient(const T* __restrict gate, const T* __restrict up,
                                     const T* __restrict out_gradient, std::int64_t width) {
  using Real = Wide<T>;
  return SumOver<Real>(width, [&](std::int64_t i) MUSTER_INLINE_CALL {
    const Real x = Load(gate[i]);
    const Real sigmoid = Real(1) / (Real(1) + Exp(-x));
    return Load(out_gradient[i]) * (x * sigmoid * Load(up[i]));
  });
}

template <typename T>
MUSTER_INLINE void Backward(T* __restrict gate, T* __restrict up, Wide<T> weight,
                            const T* __restrict out_gradient, T* __restrict out,
                            std::int64_t width) {
  using Real = Wide<T>;
  for (std::int64_t i = 0; i < width; ++i) {
    const Real x = Load(gate[i]);
    const Real y = Load(up[i]);
    const Real d = weight * Load(out_gradient[i]);
    const Real sigmoid = Real(1) / (Real(1) + Exp(-x));
    const Real silu = x * sigmoid;
    Store(&out[i], weight * (silu * y));
    Store(&up[i], d * silu);
    Store(&gate[i], d * y * (sigmoid + silu * (Real(1) - sigmoid)));
  }
}

MUSTER_VECTOR_CLONES
void Rows(const WeightedSwiGlu& g, std::int64_t begin, std::int64_t end) {
  WithElement(g.out.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const std::int64_t width = g.out.width();
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gate = g.gate_up.data<T>() + row * 2 * width;
      Forward(gate, gate + width, g.weights.data<Wide<T>>()[row], g.out.data<T>() + row * width,
              width);
    }
  });
}

MUSTER_VECTOR_CLONES
void Rows(const WeightedSwiGluBackward& g, std::int64_t begin, std::int64_t end) {
  WithElement(g.out.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const std::int64_t width = g.out.width();
    for (std::int64_t row = begin; row < end; ++row) {
      T* gate = g.gate_up.data<T>() + row * 2 * width;
      const T* out_gradient = g.out_gradient.data<T>() + row * width;
      g.weight_gradients.data<Wide<T>>()[row] =
          WeightGradient(gate, gate + width, out_gradient, width);
      Backward(gate, gate + width, g.weights.data<Wide<T>>()[row], out_gradient,
               g.out.data<T>() + row * width, width);
    }
  });
}

}  // namespace

void RunOnCpu(const WeightedSwiGlu& g) {
  OverRows(g.out.rows(), 2 * g.out.width(), [&](auto begin, auto end) { Rows(g, begin, end); });
}

void RunOnCpu(const WeightedSwiGluBackward& g) {
  OverRows(g.out.rows(), 3 * g.out.width(), [&](auto begin, auto end) { Rows(g, begin, end); });
}

}  // namespace muster::op

template void muster::CpuKernel<muster::op::WeightedSwiGlu>(const void*);
template void muster::CpuKernel<muster::op::WeightedSwiGluBackward>(const void*);
