#include "trainer/ops/clamped_swiglu.h"

#include "trainer/core/vector_math.h"
#include "trainer/ops/cpu/kernel.h"

namespace muster::op {
namespace {

template <typename T>
MUSTER_INLINE ClampedGate<Wide<T>> GateAt(const T* gate_up, std::int64_t i,
                                          const ClampedSwiGluForm& form) {
  using Real = Wide<T>;
  ClampedGate<Real> at(Load(gate_up[2 * i]), Load(gate_up[2 * i + 1]),
                       static_cast<Real>(form.limit));
  at.sigmoid = Real(1) / (Real(1) + Exp(-static_cast<Real>(form.alpha) * at.gate));
  return at;
}

MUSTER_VECTOR_CLONES
void Rows(const ClampedSwiGlu& g, std::int64_t begin, std::int64_t end) {
  WithElement(g.out.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const std::int64_t width = g.out.width();
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gate_up = g.gate_up.data<T>() + row * 2 * width;
      const Wide<T> weight = g.weights.data<Wide<T>>()[row];
      T* out = g.out.data<T>() + row * width;
      for (std::int64_t i = 0; i < width; ++i)
        Store(&out[i], weight * GateAt(gate_up, i, g.form).Value());
    }
  });
}

MUSTER_VECTOR_CLONES
void Rows(const ClampedSwiGluBackward& g, std::int64_t begin, std::int64_t end) {
  WithElement(g.out.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    using Real = Wide<T>;
    const std::int64_t width = g.out.width();
    for (std::int64_t row = begin; row < end; ++row) {
      T* gate_up = g.gate_up.data<T>() + row * 2 * width;
      const T* out_gradient = g.out_gradient.data<T>() + row * width;
      T* out = g.out.data<T>() + row * width;
      const Real weight = g.weights.data<Real>()[row];
      const Real alpha = static_cast<Real>(g.form.alpha);
      g.weight_gradients.data<Real>()[row] =
          SumOver<Real>(width, [&](std::int64_t i) MUSTER_INLINE_CALL {
            return Load(out_gradient[i]) * GateAt(gate_up, i, g.form).Value();
          });
      for (std::int64_t i = 0; i < width; ++i) {
        const ClampedGate<Real> at = GateAt(gate_up, i, g.form);
        const Real d = weight * Load(out_gradient[i]);
        Store(&out[i], weight * at.Value());
        Store(&gate_up[2 * i], d * at.GateSlope(alpha));
        Store(&gate_up[2 * i + 1], d * at.UpSlope());
      }
    }
  });
}

}  // namespace

void RunOnCpu(const ClampedSwiGlu& g) {
  OverRows(g.out.rows(), 2 * g.out.width(), [&](auto begin, auto end) { Rows(g, begin, end); });
}

void RunOnCpu(const ClampedSwiGluBackward& g) {
  OverRows(g.out.rows(), 3 * g.out.width(), [&](auto begin, auto end) { Rows(g, begin, end); });
}

}  // namespace muster::op

template void muster::CpuKernel<muster::op::ClampedSwiGlu>(const void*);
template void muster::CpuKernel<muster::op::ClampedSwiGluBackward>(const void*);
