#include "trainer/ops/sum_of_squares.h"

#include <vector>

#include "trainer/core/convert.h"
#include "trainer/ops/cpu/kernel.h"

namespace muster::op {
namespace {

// Arrays are added up in parts of this size, whatever the number of threads.
constexpr std::int64_t kSumBlock = std::int64_t{1} << 16;

}  // namespace

void RunOnCpu(const SumOfSquares& s) {
  const std::int64_t blocks = (s.count + kSumBlock - 1) / kSumBlock;
  std::vector<double> parts(static_cast<std::size_t>(blocks));
  OverRanges(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::size_t offset = static_cast<std::size_t>(b * kSumBlock) * ElementSize(s.type);
      parts[static_cast<std::size_t>(b)] =
          muster::SumOfSquares(static_cast<const std::byte*>(s.values) + offset, s.type,
                               std::min(kSumBlock, s.count - b * kSumBlock));
    }
  });
  double total = 0;
  for (const double part : parts) total += part;
  *s.sum.data<double>() += total;
}

}  // namespace muster::op

template void muster::CpuKernel<muster::op::SumOfSquares>(const void*);
