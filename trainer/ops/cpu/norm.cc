#include "trainer/ops/norm.h"

#include <algorithm>

#include "trainer/ops/cpu/gradient_parts.h"
#include "trainer/ops/cpu/kernel.h"
#include "trainer/ops/cpu/rms_norm.h"

namespace muster::op {
namespace {

template <typename T>
MUSTER_INLINE void Add(const T* x, const T* delta, T* sum, std::int64_t width) {
  // `sum` may be `x`, element for element.
#pragma GCC ivdep
  for (std::int64_t i = 0; i < width; ++i) Store(&sum[i], Load(x[i]) + Load(delta[i]));
}

MUSTER_VECTOR_CLONES
void Rows(const AddNorm& n, std::int64_t begin, std::int64_t end) {
  WithElement(n.x.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const std::int64_t width = n.x.width();
    const T* const delta = n.delta.data<T>();
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * width;
      const T* x = n.x.data<T>() + at;
      T* sum = n.sum.data<T>() + at;
      if (delta != nullptr) {
        Add(x, delta + at, sum, width);
      } else if (sum != x) {
        std::copy_n(x, width, sum);
      }
      const Wide<T> scale = ScaleOf(sum, width, n.eps);
      n.scale.data<Wide<T>>()[row] = scale;
      ApplyNorm(sum, n.weight.data<T>(), n.zero_centered, scale, n.y.data<T>() + at, width);
    }
  });
}

MUSTER_VECTOR_CLONES
void Rows(const RecomputeRmsNorm& n, std::int64_t begin, std::int64_t end) {
  WithElement(n.sum.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const std::int64_t width = n.sum.width();
    const Wide<T>* const scale = n.scale.data<Wide<T>>();
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * width;
      ApplyNorm(n.sum.data<T>() + at, n.weight.data<T>(), n.zero_centered, scale[row],
                n.y.data<T>() + at, width);
    }
  });
}

MUSTER_VECTOR_CLONES
void Rows(const NormBackward& n, void* part, std::int64_t begin, std::int64_t end) {
  WithElement(n.sum.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const std::int64_t width = n.sum.width();
    const T* const weight = n.weight.data<T>();
    Wide<T>* const weight_gradient = static_cast<Wide<T>*>(part);
    for (std::int64_t row = begin; row < end; ++row) {
      const T* const x = n.sum.data<T>() + row * width;
      const T* const dy = n.y_gradient.data<T>() + row * width;
      T* const dx = n.gradient.data<T>() + row * width;
      const Wide<T> scale = n.scale.data<Wide<T>>()[row];
      RowGradient<true>(x, weight, n.zero_centered, scale, dy, dx, weight_gradient, width);
    }
  });
}

}  // namespace

void RunOnCpu(const AddNorm& n) {
  OverRows(n.x.rows(), n.x.width(), [&](auto begin, auto end) { Rows(n, begin, end); });
}

void RunOnCpu(const RecomputeRmsNorm& n) {
  OverRows(n.sum.rows(), n.sum.width(), [&](auto begin, auto end) { Rows(n, begin, end); });
}

void RunOnCpu(const NormBackward& n) {
  const RowRuns runs(n.sum.rows());
  GradientParts parts(runs, n.weight_gradient, WideType(n.sum.type()));
  runs.Over(n.sum.width(),
            [&](auto run, auto begin, auto end) { Rows(n, parts.Of(run), begin, end); });
  parts.Join();
}

}  // namespace muster::op

template void muster::CpuKernel<muster::op::AddNorm>(const void*);
template void muster::CpuKernel<muster::op::RecomputeRmsNorm>(const void*);
template void muster::CpuKernel<muster::op::NormBackward>(const void*);
