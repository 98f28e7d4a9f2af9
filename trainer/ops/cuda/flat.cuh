// What the kernels over flat arrays share: reading and writing of runs of elements.
//
// Types are looked up as a kernel runs: every thread of a block takes the same way, memory is what
// these kernels wait for, and one kernel serves all combinations of types.
#pragma once

#include "trainer/ops/cuda/kernel.cuh"

namespace muster::cuda {

inline constexpr unsigned kFlatThreads = 256;
// Elements of a thread: 16 bytes of the narrowest type.
inline constexpr int kRun = 8;

template <typename T, typename Real, int N>
__device__ void ReadAs(const void* array, std::int64_t at, Real* out) {
  constexpr int kPart = N < kPack<T> ? N : kPack<T>;
  const T* const from = static_cast<const T*>(array) + at;
  for (int k = 0; k < N; k += kPart) {
    const Pack<T, kPart> pack = ReadPack<kPart>(from + k);
    for (int j = 0; j < kPart; ++j) out[k + j] = static_cast<Real>(Read(pack.at[j]));
  }
}

template <typename T, typename Real, int N>
__device__ void WriteAs(void* array, std::int64_t at, const Real* values) {
  constexpr int kPart = N < kPack<T> ? N : kPack<T>;
  T* const to = static_cast<T*>(array) + at;
  for (int k = 0; k < N; k += kPart) {
    Pack<T, kPart> pack;
    for (int j = 0; j < kPart; ++j) Write(&pack.at[j], static_cast<Wide<T>>(values[k + j]));
    WritePack(to + k, pack);
  }
}

template <int N, typename Real>
__device__ void ReadRun(const void* array, ElementType type, std::int64_t at, Real* out) {
  switch (type) {
    case ElementType::kFloat64: return ReadAs<double, Real, N>(array, at, out);
    case ElementType::kFloat32: return ReadAs<float, Real, N>(array, at, out);
    case ElementType::kBFloat16: return ReadAs<BFloat16, Real, N>(array, at, out);
    default: return ReadAs<Float16, Real, N>(array, at, out);
  }
}

template <int N, typename Real>
__device__ void WriteRun(void* array, ElementType type, std::int64_t at, const Real* values) {
  switch (type) {
    case ElementType::kFloat64: return WriteAs<double, Real, N>(array, at, values);
    case ElementType::kFloat32: return WriteAs<float, Real, N>(array, at, values);
    case ElementType::kBFloat16: return WriteAs<BFloat16, Real, N>(array, at, values);
    default: return WriteAs<Float16, Real, N>(array, at, values);
  }
}

inline bool IsFloating(ElementType type) {
  return type != ElementType::kUint8 && type != ElementType::kInt64;
}

}  // namespace muster::cuda
