#include "trainer/ops/geglu.h"

#include "trainer/core/vector_math.h"
#include "trainer/ops/cpu/kernel.h"

namespace muster::op {
namespace {

// The part of x that gelu lets through.
template <typename Real>
MUSTER_INLINE Real ShareOf(Real x) {
  constexpr Real kLinear = static_cast<Real>(-2 * kGeluScale);
  constexpr Real kCubic = static_cast<Real>(-2 * kGeluScale * kGeluCube);
  return Real(1) / (Real(1) + Exp(x * (kLinear + kCubic * (x * x))));
}

// Compilers believe __restrict of parameters, also after inlining.
template <typename T>
MUSTER_INLINE void Forward(const T* __restrict gate, const T* __restrict up, T* __restrict out,
                           std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) {
    const Wide<T> x = Load(gate[i]);
    Store(&out[i], x * ShareOf(x) * Load(up[i]));
  }
}

template <typename T>
MUSTER_INLINE void Backward(T* __restrict gate, T* __restrict up, const T* __restrict out_gradient,
                            T* __restrict out, std::int64_t width) {
  using Real = Wide<T>;
  constexpr Real kLinear = static_cast<Real>(2 * kGeluScale);
  constexpr Real kSquare = static_cast<Real>(6 * kGeluScale * kGeluCube);
  for (std::int64_t i = 0; i < width; ++i) {
    const Real x = Load(gate[i]);
    const Real y = Load(up[i]);
    const Real d = Load(out_gradient[i]);
    const Real share = ShareOf(x);
    const Real gelu = x * share;
    Store(&out[i], gelu * y);
    Store(&up[i], d * gelu);
    const Real change = (Real(1) - share) * gelu * (kLinear + kSquare * (x * x));
    Store(&gate[i], d * y * (share + change));
  }
}

MUSTER_VECTOR_CLONES
void Rows(const GeGlu& g, std::int64_t begin, std::int64_t end) {
  WithElement(g.out.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const std::int64_t width = g.out.width();
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gate = g.gate_up.data<T>() + row * 2 * width;
      Forward(gate, gate + width, g.out.data<T>() + row * width, width);
    }
  });
}

MUSTER_VECTOR_CLONES
void Rows(const GeGluBackward& g, std::int64_t begin, std::int64_t end) {
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

void RunOnCpu(const GeGlu& g) {
  OverRows(g.out.rows(), 2 * g.out.width(), [&](auto begin, auto end) { Rows(g, begin, end); });
}

void RunOnCpu(const GeGluBackward& g) {
  OverRows(g.out.rows(), 2 * g.out.width(), [&](auto begin, auto end) { Rows(g, begin, end); });
}

}  // namespace muster::op

template void muster::CpuKernel<muster::op::GeGlu>(const void*);
template void muster::CpuKernel<muster::op::GeGluBackward>(const void*);
