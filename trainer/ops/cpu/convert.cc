#include "trainer/ops/convert.h"

#include "trainer/core/convert.h"
#include "trainer/ops/cpu/kernel.h"

namespace muster::op {

void RunOnCpu(const Convert& c) {
  OverRanges(c.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    const std::size_t at = static_cast<std::size_t>(begin);
    muster::Convert(static_cast<const std::byte*>(c.from) + at * ElementSize(c.from_type),
                    c.from_type, static_cast<std::byte*>(c.to) + at * ElementSize(c.to_type),
                    c.to_type, end - begin, c.add);
  });
}

}  // namespace muster::op

template void muster::CpuKernel<muster::op::Convert>(const void*);
