#include "trainer/ops/rope.h"

#include <vector>

#include "trainer/ops/cpu/kernel.h"
#include "trainer/ops/documents.h"

namespace muster::op {
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

// `positions` of each row; null: the row modulo length.
MUSTER_VECTOR_CLONES
void Rows(const ApplyRope& r, const std::int32_t* positions, std::int64_t begin, std::int64_t end) {
  WithElement(r.qkv.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const std::int64_t half = r.cos.width(), turned = r.heads.heads + r.heads.kv_heads;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t position = positions == nullptr ? row % r.shape.length : positions[row];
      const std::int64_t angles = position * half;
      for (std::int64_t head = 0; head < turned; ++head) {
        T* left = r.qkv.data<T>() + row * r.qkv.width() + head * r.heads.head_dim;
        TurnHead(left, left + half, half, r.cos.data<Wide<T>>() + angles,
                 r.sin.data<Wide<T>>() + angles, static_cast<Wide<T>>(r.direction));
      }
    }
  });
}

}  // namespace

void RunOnCpu(const ApplyRope& r) {
  const bool packed = !r.shape.document_begins.empty();
  const std::vector<std::int32_t> positions =
      packed ? TokenPositions(r.shape) : std::vector<std::int32_t>();
  OverRows(r.qkv.rows(), r.qkv.width(),
           [&](auto begin, auto end) { Rows(r, packed ? positions.data() : nullptr, begin, end); });
}

}  // namespace muster::op

template void muster::CpuKernel<muster::op::ApplyRope>(const void*);
