// Rotary embedding: a thread has a pack of elements.
#include "trainer/ops/rope.h"

#include "trainer/ops/cuda/kernel.cuh"

namespace muster::cuda {
inline namespace rope_kernels {

constexpr unsigned kThreads = 256;

template <typename T>
struct Turn {
  std::int64_t packs;  // in all
  std::int64_t heads;
  std::int64_t head_dim;
  std::int64_t half;  // pairs of a head that turn
  std::int64_t stride;
  std::int64_t length;
  const std::int32_t* positions;  // null: the row modulo length
  T* qkv;
  const Wide<T>* cos;
  const Wide<T>* sin;
  Wide<T> direction;
};

template <typename T, int N>
__global__ void RopeKernel(Turn<T> t) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= t.packs) return;
  const std::int64_t per_head = t.half / N;
  const std::int64_t i = index % per_head * N;
  const std::int64_t head = index / per_head % t.heads;
  const std::int64_t row = index / per_head / t.heads;
  T* const left = t.qkv + row * t.stride + head * t.head_dim + i;
  T* const right = left + t.half;
  const std::int64_t position = t.positions == nullptr ? row % t.length : t.positions[row];
  const std::int64_t angle = position * t.half + i;
  Pack<T, N> a = ReadPack<N>(left);
  Pack<T, N> b = ReadPack<N>(right);
  for (int k = 0; k < N; ++k) {
    const Wide<T> x = Read(a.at[k]);
    const Wide<T> y = Read(b.at[k]);
    const Wide<T> cos = t.cos[angle + k];
    const Wide<T> sin = t.sin[angle + k] * t.direction;
    Write(&a.at[k], x * cos - y * sin);
    Write(&b.at[k], y * cos + x * sin);
  }
  WritePack(left, a);
  WritePack(right, b);
}

}  // namespace rope_kernels

CudaResult RunOnCuda(const op::ApplyRope& r, KernelScope& scope) {
  return WithElement(r.qkv.type(), [&]<typename T>(T*) {
    const std::int64_t half = r.cos.width(), turned = r.heads.heads + r.heads.kv_heads;
    const bool packs = half % kPack<T> == 0 && r.heads.head_dim % kPack<T> == 0 &&
                       r.qkv.width() % kPack<T> == 0 && Aligned(r.qkv.data());
    const bool packed = !r.shape.document_begins.empty();
    const Turn<T> turn{r.qkv.rows() * turned * half / (packs ? kPack<T> : 1),
                       turned,
                       r.heads.head_dim,
                       half,
                       r.qkv.width(),
                       r.shape.length,
                       packed ? scope.TokenPositions(r.shape) : nullptr,
                       r.qkv.data<T>(),
                       r.cos.data<Wide<T>>(),
                       r.sin.data<Wide<T>>(),
                       static_cast<Wide<T>>(r.direction)};
    return Launch(packs ? RopeKernel<T, kPack<T>> : RopeKernel<T, 1>,
                  BlocksFor(turn.packs, kThreads), kThreads, 0, scope.stream(), turn);
  });
}

template CudaResult CudaKernel<op::ApplyRope>(const void*, KernelScope&);

}  // namespace muster::cuda
