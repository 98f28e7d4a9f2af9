#include "trainer/ops/swiglu.h"

#include "trainer/core/vector_math.h"
#include "trainer/ops/cpu/kernel.h"

namespace muster::op {
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

MUSTER_VECTOR_CLONES
void Rows(const SwiGlu& g, std::int64_t begin, std::int64_t end) {
  WithElement(g.out.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const std::int64_t width = g.out.width();
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gate = g.gate_up.data<T>() + row * 2 * width;
      Forward(gate, gate + width, g.out.data<T>() + row * width, width);
    }
  });
}

MUSTER_VECTOR_CLONES
void Rows(const SwiGluBackward& g, std::int64_t begin, std::int64_t end) {
  WithElement(g.out.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const std::int64_t width = g.out.width();
    for (std::int64_t row = begin; row < end; ++row) {
      T* gate = g.gate_up.data<T>() + row * 2 * width;
      Backward(gate, gate + width, g.out_gradient.data<T>() + row * width,
               g.out.data<T>() + row * width, width);
    }
  });
}

}  // namespace

void RunOnCpu(const SwiGlu& g) {
  OverRows(g.out.rows(), 2 * g.out.width(), [&](auto begin, auto end) { Rows(g, begin, end); });
}

void RunOnCpu(const SwiGluBackward& g) {
  OverRows(g.out.rows(), 2 * g.out.width(), [&](auto begin, auto end) { Rows(g, begin, end); });
}

}  // namespace muster::op

template void muster::CpuKernel<muster::op::SwiGlu>(const void*);
template void muster::CpuKernel<muster::op::SwiGluBackward>(const void*);
