#include "trainer/ops/qk_norm.h"

#include <algorithm>

#include "trainer/ops/cpu/gradient_parts.h"
#include "trainer/ops/cpu/kernel.h"
#include "trainer/ops/cpu/rms_norm.h"

namespace muster::op {
namespace {

MUSTER_VECTOR_CLONES
void Rows(const QkNorm& n, std::int64_t begin, std::int64_t end) {
  WithElement(n.qkv.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const QkGroups groups = GroupsOf(n.heads, n.query_weight, n.key_weight);
    const std::int64_t normed = groups.queries + groups.keys;
    const std::int64_t row_width = n.heads.joined_width();
    for (std::int64_t row = begin; row < end; ++row) {
      const T* x = n.qkv.data<T>() + row * row_width;
      T* y = n.out.data<T>() + row * row_width;
      Wide<T>* const scales = n.scale.data<Wide<T>>() + row * normed;
      for (std::int64_t group = 0; group < normed; ++group) {
        const ConstArray& weight = group < groups.queries ? n.query_weight : n.key_weight;
        const std::int64_t width = weight.count();
        scales[group] = ScaleOf(x, width, n.eps);
        ApplyNorm(x, weight.data<T>(), n.zero_centered, scales[group], y, width);
        x += width;
        y += width;
      }
      std::copy_n(x, n.heads.kv_heads * n.heads.head_dim, y);
    }
  });
}

MUSTER_VECTOR_CLONES
void Rows(const QkNormBackward& n, void* query_part, void* key_part, std::int64_t begin,
          std::int64_t end) {
  WithElement(n.qkv.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const QkGroups groups = GroupsOf(n.heads, n.query_weight, n.key_weight);
    const std::int64_t normed = groups.queries + groups.keys;
    const std::int64_t row_width = n.heads.joined_width();
    for (std::int64_t row = begin; row < end; ++row) {
      const T* x = n.qkv.data<T>() + row * row_width;
      T* dy = n.gradient.data<T>() + row * row_width;
      const Wide<T>* const scale = n.scale.data<Wide<T>>() + row * normed;
      for (std::int64_t group = 0; group < normed; ++group) {
        const bool query = group < groups.queries;
        const std::int64_t width = query ? groups.query_width : groups.key_width;
        const T* const weight = query ? n.query_weight.data<T>() : n.key_weight.data<T>();
        Wide<T>* const to = static_cast<Wide<T>*>(query ? query_part : key_part);
        RowGradient<false>(x, weight, n.zero_centered, scale[group], dy, dy, to, width);
        x += width;
        dy += width;
      }
    }
  });
}

}  // namespace

void RunOnCpu(const QkNorm& n) {
  OverRows(n.qkv.rows(), n.qkv.width(), [&](auto begin, auto end) { Rows(n, begin, end); });
}

void RunOnCpu(const QkNormBackward& n) {
  const RowRuns runs(n.qkv.rows());
  GradientParts query(runs, n.query_weight_gradient, WideType(n.qkv.type()));
  GradientParts key(runs, n.key_weight_gradient, WideType(n.qkv.type()));
  runs.Over(n.qkv.width(), [&](auto run, auto begin, auto end) {
    Rows(n, query.Of(run), key.Of(run), begin, end);
  });
  query.Join();
  key.Join();
}

}  // namespace muster::op

template void muster::CpuKernel<muster::op::QkNorm>(const void*);
template void muster::CpuKernel<muster::op::QkNormBackward>(const void*);
