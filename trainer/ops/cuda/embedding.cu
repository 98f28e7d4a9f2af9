// The gradient of the embedding table: a block has columns of a word.
#include "trainer/ops/embedding.h"

#include "trainer/ops/cuda/kernel.cuh"

namespace muster::cuda {
inline namespace embedding_kernels {

constexpr unsigned kColumns = 128;

// Blocks of the first place of a word add up all of its places; the others have nothing to do.
template <typename T, typename Out>
__global__ void EmbeddingKernel(op::EmbeddingBackward e, SortedIds sorted,
                                std::int64_t column_blocks) {
  using Real = Wide<T>;
  const std::int64_t count = e.gradient.rows(), width = e.gradient.width();
  const std::int64_t first = blockIdx.x / column_blocks;
  const std::int64_t column =
      blockIdx.x % column_blocks * blockDim.x + static_cast<std::int64_t>(threadIdx.x);
  const std::int64_t word = sorted.ids[first];
  if (first > 0 && sorted.ids[first - 1] == word) return;
  if (word < 0 || word >= e.table_gradient.array.rows() || column >= width) return;
  Real sum = 0;
  for (std::int64_t i = first; i < count && sorted.ids[i] == word; ++i) {
    sum += Read(e.gradient.data<T>()[sorted.places[i] * width + column]);
  }
  Out* const to = e.table_gradient.array.data<Out>() + word * width + column;
  if (e.table_gradient.add) sum += Read(*to);
  Write(to, static_cast<Wide<Out>>(sum));
}

template <typename Out>
__global__ void ClearKernel(Out* values, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < count; i += step) Write(&values[i], Wide<Out>(0));
}

}  // namespace embedding_kernels

CudaResult RunOnCuda(const op::EmbeddingBackward& e, KernelScope& scope) {
  const Array& table = e.table_gradient.array;
  const SortedIds sorted = scope.Sorted(e.ids);
  return WithElement(table.type(), [&]<typename Out>(Out*) {
    if (!e.table_gradient.add) {
      const unsigned blocks = table.count() < 4096 * 512 ? BlocksFor(table.count(), 512) : 4096;
      const CudaResult result = Launch(ClearKernel<Out>, blocks, 512, 0, scope.stream(),
                                       table.data<Out>(), table.count());
      if (result != CudaResult::kSuccess) return result;
    }
    return WithElement(e.gradient.type(), [&]<typename T>(T*) {
      const std::int64_t column_blocks = BlocksFor(e.gradient.width(), kColumns);
      return Launch(EmbeddingKernel<T, Out>,
                    static_cast<unsigned>(e.gradient.rows() * column_blocks), kColumns, 0,
                    scope.stream(), e, sorted, column_blocks);
    });
  });
}

template CudaResult CudaKernel<op::EmbeddingBackward>(const void*, KernelScope&);

}  // namespace muster::cuda
