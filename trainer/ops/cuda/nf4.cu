// Values of tensors quantised to NF4: a thread has eight codes.
#include "trainer/ops/nf4.h"

#include "trainer/ops/cuda/kernel.cuh"

namespace muster::cuda {
inline namespace nf4_kernels {

constexpr unsigned kThreads = 256;
constexpr int kCodes = 8;

// Rounded apart: one fused operation would give other bits than the CPU.
__device__ __forceinline__ float Product(float a, float b) {
#if defined(__CUDACC__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
__device__ __forceinline__ float Sum(float a, float b) {
#if defined(__CUDACC__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

struct Levels {
  float at[16];
};

__device__ __forceinline__ float BlockScale(const Nf4Source& s, std::int64_t block) {
  if (s.absmax != nullptr) return s.absmax[block];
  const float nested = s.nested_absmax[block / kNf4NestedBlock];
  return Sum(Product(s.nested_code[s.absmax_codes[block]], nested), s.offset);
}

template <typename T>
__global__ void DequantizeKernel(Nf4Source s, Levels levels, T* out, bool packs) {
  __shared__ float table[16];  // since lanes look up different entries
  if (threadIdx.x < 16) table[threadIdx.x] = levels.at[threadIdx.x];
  __syncthreads();
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kCodes;
  if (first >= s.count) return;
  const float scale = BlockScale(s, first / kNf4Block);
  const std::int64_t left = s.count - first;
  const int count = left < kCodes ? static_cast<int>(left) : kCodes;
  Pack<T, kCodes> values;
  for (int i = 0; i < count; ++i) {
    const unsigned pair = s.codes[(first + i) / 2];
    const float level = table[i % 2 == 0 ? pair >> 4 : pair & 15u];
    Write(&values.at[i], static_cast<Wide<T>>(Product(level, scale)));
  }
  if (packs && count == kCodes) {
    WritePack(out + first, values);
  } else {
    for (int i = 0; i < count; ++i) out[first + i] = values.at[i];
  }
}

}  // namespace nf4_kernels

CudaResult RunOnCuda(const op::DequantizeNf4& d, KernelScope& scope) {
  Levels levels;
  for (int i = 0; i < 16; ++i) levels.at[i] = kNf4Levels[i];
  return WithElement(d.out.type(), [&]<typename T>(T*) {
    T* const out = d.out.data<T>();
    const bool packs = reinterpret_cast<std::uintptr_t>(out) % sizeof(Pack<T, kCodes>) == 0;
    return Launch(DequantizeKernel<T>, BlocksFor(d.source.count, kThreads * kCodes), kThreads, 0,
                  scope.stream(), d.source, levels, out, packs);
  });
}

template CudaResult CudaKernel<op::DequantizeNf4>(const void*, KernelScope&);

}  // namespace muster::cuda
