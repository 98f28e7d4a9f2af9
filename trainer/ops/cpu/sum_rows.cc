#include "trainer/ops/sum_rows.h"

#include <algorithm>
#include <vector>

#include "trainer/ops/cpu/kernel.h"

namespace muster::op {
namespace {

MUSTER_VECTOR_CLONES
void Rows(const SumRows& s, std::int64_t begin, std::int64_t end) {
  WithElement(s.out.type(), [&]<typename T>(T*) MUSTER_INLINE_CALL {
    const std::int64_t width = s.out.width(), count = s.places.width();
    std::vector<Wide<T>> sums(static_cast<std::size_t>(width));
    for (std::int64_t row = begin; row < end; ++row) {
      Wide<T>* __restrict sum = sums.data();
      std::fill_n(sum, width, Wide<T>{0});
      for (std::int64_t k = 0; k < count; ++k) {
        const std::int64_t place = s.places.data<std::int64_t>()[row * count + k];
        const T* __restrict values = s.from.data<T>() + place * width;
        for (std::int64_t i = 0; i < width; ++i) sum[i] += Load(values[i]);
      }
      T* __restrict out = s.out.data<T>() + row * width;
      for (std::int64_t i = 0; i < width; ++i) Store(&out[i], sum[i]);
    }
  });
}

}  // namespace

void RunOnCpu(const SumRows& s) {
  OverRows(s.out.rows(), s.places.width() * s.out.width(),
           [&](auto begin, auto end) { Rows(s, begin, end); });
}

}  // namespace muster::op

template void muster::CpuKernel<muster::op::SumRows>(const void*);
