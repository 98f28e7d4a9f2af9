// What the kernels share: reading and writing of elements, sums over a block, launches.
//
// Memory is read and written 16 bytes at a time where addresses and widths allow it. Every result
// is a function of the arguments alone: there are no atomic additions, and the cut into blocks
// depends on shapes only, not on the GPU.
//
// The kernels are also compiled by the ordinary compiler, over an emulation of blocks and threads
// (emulation.h), so that tests run them where no GPU is.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#else
#include "trainer/ops/cuda/emulation.h"
#endif

#include "trainer/core/element.h"
#include "trainer/ops/cuda/kernel_entry.h"

namespace muster::cuda {

// --- elements ---

__device__ __forceinline__ double Read(double value) { return value; }
__device__ __forceinline__ float Read(float value) { return value; }
__device__ __forceinline__ void Write(double* to, double value) { *to = value; }
__device__ __forceinline__ void Write(float* to, float value) { *to = value; }
#if defined(__CUDACC__)
__device__ __forceinline__ float Read(BFloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}
__device__ __forceinline__ float Read(Float16 value) {
  return __half2float(__ushort_as_half(value.bits));
}
__device__ __forceinline__ void Write(BFloat16* to, float value) {
  to->bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
__device__ __forceinline__ void Write(Float16* to, float value) {
  to->bits = __half_as_ushort(__float2half_rn(value));
}
#else
inline float Read(BFloat16 value) { return Load(value); }
inline float Read(Float16 value) { return Load(value); }
inline void Write(BFloat16* to, float value) { Store(to, value); }
inline void Write(Float16* to, float value) { Store(to, value); }
#endif

template <typename T>
__device__ __forceinline__ Wide<T> RoundedTo(Wide<T> value) {
  T stored;
  Write(&stored, value);
  return Read(stored);
}

__device__ __forceinline__ float Exp(float x) { return expf(x); }
__device__ __forceinline__ double Exp(double x) { return exp(x); }
__device__ __forceinline__ float Tanh(float x) { return tanhf(x); }
__device__ __forceinline__ double Tanh(double x) { return tanh(x); }
__device__ __forceinline__ float Root(float x) { return sqrtf(x); }
__device__ __forceinline__ double Root(double x) { return sqrt(x); }

// A norm's output and what its weight multiplies by (trainer/ops/norm.h).
template <typename T>
__device__ __forceinline__ Wide<T> GainOf(T weight, bool zero_centered) {
  return zero_centered ? Wide<T>(1) + Read(weight) : Read(weight);
}
template <typename T>
__device__ __forceinline__ Wide<T> Normed(T x, Wide<T> scale, T weight, bool zero_centered) {
  const Wide<T> normed = Read(x) * scale;
  return GainOf(weight, zero_centered) * (zero_centered ? normed : RoundedTo<T>(normed));
}

// N elements that are read or written at once.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};
template <int N, typename T>
__device__ __forceinline__ Pack<T, N> ReadPack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, typename T>
__device__ __forceinline__ void WritePack(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}
template <typename T>
inline constexpr int kPack = 16 / sizeof(T);

// --- sums and maxima over a block of whole warps, the same in every thread ---

inline constexpr int kWarp = 32;

template <typename Value, typename Join>
__device__ Value OverBlock(Value value, Value neutral, Join join) {
  __shared__ Value parts[kWarp];
  __shared__ Value total;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int warps = blockDim.x / kWarp;
  for (int step = kWarp / 2; step > 0; step /= 2) {
    value = join(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  if (warp == 0) {
    value = lane < warps ? parts[lane] : neutral;
    for (int step = kWarp / 2; step > 0; step /= 2) {
      value = join(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    if (lane == 0) total = value;
  }
  __syncthreads();
  value = total;
  __syncthreads();  // before another call writes
  return value;
}

struct Plus {
  template <typename Value>
  __device__ Value operator()(Value a, Value b) const {
    return a + b;
  }
};
// A NaN is passed over.
struct Larger {
  template <typename Value>
  __device__ Value operator()(Value a, Value b) const {
    return b > a ? b : a;
  }
};

template <typename Value>
__device__ __forceinline__ Value BlockSum(Value value) {
  return OverBlock(value, Value(0), Plus());
}

// --- on the host ---

inline constexpr CudaResult kInvalidValue{1};  // cudaErrorInvalidValue

inline unsigned BlocksFor(std::int64_t work, std::int64_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

template <typename... Parameters, typename... Arguments>
CudaResult Launch(void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                  std::size_t shared_bytes, CudaStream stream, const Arguments&... arguments) {
  if (blocks == 0) return CudaResult::kSuccess;
#if defined(__CUDACC__)
  kernel<<<blocks, threads, shared_bytes, reinterpret_cast<cudaStream_t>(stream)>>>(arguments...);
  return static_cast<CudaResult>(cudaGetLastError());
#else
  (void)stream;
  emulation::Run(blocks, threads, shared_bytes, [&] { kernel(arguments...); });
  return CudaResult::kSuccess;
#endif
}

// Calls f with a null pointer of the element type; other types are an invalid value.
template <typename F>
CudaResult WithElement(ElementType type, F f) {
  switch (type) {
    case ElementType::kFloat64: return f(static_cast<double*>(nullptr));
    case ElementType::kFloat32: return f(static_cast<float*>(nullptr));
    case ElementType::kBFloat16: return f(static_cast<BFloat16*>(nullptr));
    case ElementType::kFloat16: return f(static_cast<Float16*>(nullptr));
    case ElementType::kUint8:
    case ElementType::kInt64: break;
  }
  return kInvalidValue;
}

template <typename... Pointers>
bool Aligned(Pointers... pointers) {
  return (... && (reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0));
}

}  // namespace muster::cuda
