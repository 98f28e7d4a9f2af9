// Flat arrays: the optimizer, sums of squares, conversions.
//
// Types are looked up as the kernel runs: every thread of a block takes the same way, memory is
// what these kernels wait for, and one kernel serves all combinations of types.
#include <algorithm>

#include "trainer/ops/cuda/kernels/tools.cuh"

namespace muster::cuda {
namespace {

constexpr unsigned kThreads = 256;
// Elements of a thread: 16 bytes of the narrowest type.
constexpr int kRun = 8;

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

// What a thread reads is what it wrote: the value as the type keeps it.
template <typename Real>
__device__ Real RoundedAs(ElementType type, Real value) {
  switch (type) {
    case ElementType::kFloat64: return value;
    case ElementType::kFloat32: return static_cast<Real>(static_cast<float>(value));
    case ElementType::kBFloat16: return RoundedTo<BFloat16>(static_cast<float>(value));
    default: return RoundedTo<Float16>(static_cast<float>(value));
  }
}

template <typename Real>
struct AdamWCoefficients {
  Real decay;
  Real beta1_rest;
  Real beta2;
  Real beta2_rest;
  Real step_size;
  Real correction2_root;
  Real eps;
  Real gradient_scale;
};

template <typename Real, int N>
__device__ void AdamWRun(const OptimizerArrays& a, const AdamWCoefficients<Real>& c,
                         std::int64_t at) {
  Real weight[N], m[N], v[N], gradient[N];
  ReadRun<N>(a.old_weight, a.weight_type, at, weight);
  ReadRun<N>(a.old_exp_avg, a.moment_type, at, m);
  ReadRun<N>(a.old_exp_avg_sq, a.moment_type, at, v);
  ReadRun<N>(a.gradient, a.gradient_type, at, gradient);
  for (int k = 0; k < N; ++k) {
    const Real g = gradient[k] * c.gradient_scale;
    m[k] = m[k] + (g - m[k]) * c.beta1_rest;
    v[k] = v[k] * c.beta2 + g * g * c.beta2_rest;
    const Real denominator = Root(v[k]) / c.correction2_root + c.eps;
    weight[k] = weight[k] * c.decay - c.step_size * (m[k] / denominator);
  }
  WriteRun<N>(a.weight, a.weight_type, at, weight);
  WriteRun<N>(a.exp_avg, a.moment_type, at, m);
  WriteRun<N>(a.exp_avg_sq, a.moment_type, at, v);
  if (a.low_precision == nullptr) return;
  for (int k = 0; k < N; ++k) weight[k] = RoundedAs(a.weight_type, weight[k]);
  WriteRun<N>(a.low_precision, a.low_precision_type, at, weight);
}

template <typename Real, int N>
__global__ void AdamWKernel(OptimizerArrays a, AdamWCoefficients<Real> c) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t at = index * N;
  if (at + N <= a.count) {
    AdamWRun<Real, N>(a, c, at);
  } else {
    for (std::int64_t i = at; i < a.count; ++i) AdamWRun<Real, 1>(a, c, i);
  }
}

template <int N>
__global__ void SquaresKernel(const void* values, ElementType type, std::int64_t count,
                              double* parts) {
  double own = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * N;
  std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  for (; at + N <= count; at += step) {
    double run[N];
    ReadRun<N>(values, type, at, run);
    for (int k = 0; k < N; ++k) own += run[k] * run[k];
  }
  for (; at < count; ++at) {
    double one = 0;
    ReadRun<1>(values, type, at, &one);
    own += one * one;
  }
  const double all = BlockSum(own);
  if (threadIdx.x == 0) parts[blockIdx.x] = all;
}

__global__ void AddSquaresKernel(const double* parts, std::int64_t count, double* sum) {
  double own = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) own += parts[i];
  const double all = BlockSum(own);
  if (threadIdx.x == 0) *sum += all;
}

template <typename Real, int N>
__device__ void ConvertRun(const ConvertRows& c, std::int64_t from, std::int64_t to) {
  Real values[N];
  ReadRun<N>(c.from, c.from_type, from, values);
  if (c.add) {
    Real before[N];
    ReadRun<N>(c.to, c.to_type, to, before);
    for (int k = 0; k < N; ++k) values[k] += before[k];
  }
  WriteRun<N>(c.to, c.to_type, to, values);
}

template <typename Real, int N>
__global__ void ConvertKernel(ConvertRows c, std::int64_t runs_per_row) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= runs_per_row * c.rows) return;
  const std::int64_t row = index / runs_per_row;
  const std::int64_t column = index % runs_per_row * N;
  const std::int64_t from = row * c.from_stride + column;
  const std::int64_t to = row * c.to_stride + column;
  if (column + N <= c.columns) {
    ConvertRun<Real, N>(c, from, to);
  } else {
    for (std::int64_t k = 0; k < c.columns - column; ++k) ConvertRun<Real, 1>(c, from + k, to + k);
  }
}

bool IsFloating(ElementType type) {
  return type != ElementType::kUint8 && type != ElementType::kInt64;
}

template <typename Real>
CudaResult LaunchAdamW(const OptimizerArrays& a, const AdamWOptions& options, const AdamWStep& step,
                       CudaStream stream) {
  const double number = static_cast<double>(step.number);
  const double correction1 = 1.0 - std::pow(options.beta1, number);
  const double correction2 = 1.0 - std::pow(options.beta2, number);
  const AdamWCoefficients<Real> c{static_cast<Real>(1.0 - step.lr * options.weight_decay),
                                  static_cast<Real>(1.0 - options.beta1),
                                  static_cast<Real>(options.beta2),
                                  static_cast<Real>(1.0 - options.beta2),
                                  static_cast<Real>(step.lr / correction1),
                                  static_cast<Real>(std::sqrt(correction2)),
                                  static_cast<Real>(options.eps),
                                  static_cast<Real>(step.gradient_scale)};
  if (Aligned(a.weight, a.exp_avg, a.exp_avg_sq, a.old_weight, a.old_exp_avg, a.old_exp_avg_sq,
              a.gradient, a.low_precision)) {
    return Launch(AdamWKernel<Real, kRun>, BlocksFor(a.count, kThreads * kRun), kThreads, 0, stream,
                  a, c);
  }
  return Launch(AdamWKernel<Real, 1>, BlocksFor(a.count, kThreads), kThreads, 0, stream, a, c);
}

template <typename Real>
CudaResult LaunchConvert(const ConvertRows& c, CudaStream stream) {
  const bool rows_begin_aligned =
      c.rows == 1 || (c.from_stride % kRun == 0 && c.to_stride % kRun == 0);
  if (rows_begin_aligned && Aligned(c.from, c.to)) {
    const std::int64_t runs = (c.columns + kRun - 1) / kRun;
    return Launch(ConvertKernel<Real, kRun>, BlocksFor(runs * c.rows, kThreads), kThreads, 0,
                  stream, c, runs);
  }
  return Launch(ConvertKernel<Real, 1>, BlocksFor(c.columns * c.rows, kThreads), kThreads, 0,
                stream, c, c.columns);
}

}  // namespace

CudaResult AdamW(const OptimizerArrays& a, const AdamWOptions& options, const AdamWStep& step,
                 CudaStream stream) {
  for (const ElementType type :
       {a.weight_type, a.moment_type, a.gradient_type, a.low_precision_type}) {
    if (!IsFloating(type)) return kInvalidValue;
  }
  const bool wide =
      a.weight_type == ElementType::kFloat64 || a.moment_type == ElementType::kFloat64;
  OptimizerArrays arrays = a;
  if (arrays.old_weight == nullptr) arrays.old_weight = a.weight;
  if (arrays.old_exp_avg == nullptr) arrays.old_exp_avg = a.exp_avg;
  if (arrays.old_exp_avg_sq == nullptr) arrays.old_exp_avg_sq = a.exp_avg_sq;
  return wide ? LaunchAdamW<double>(arrays, options, step, stream)
              : LaunchAdamW<float>(arrays, options, step, stream);
}

// Enough to fill every GPU; each is added up in a fixed order, as are the parts.
std::int64_t SquareParts(std::int64_t count) {
  return std::clamp<std::int64_t>(BlocksFor(count, kThreads * kRun), 1, 1024);
}

CudaResult SumOfSquares(const void* values, ElementType type, std::int64_t count, double* parts,
                        double* sum, CudaStream stream) {
  if (!IsFloating(type)) return kInvalidValue;
  const auto blocks = static_cast<unsigned>(SquareParts(count));
  const CudaResult result =
      Aligned(values)
          ? Launch(SquaresKernel<kRun>, blocks, kThreads, 0, stream, values, type, count, parts)
          : Launch(SquaresKernel<1>, blocks, kThreads, 0, stream, values, type, count, parts);
  if (result != CudaResult::kSuccess) return result;
  return Launch(AddSquaresKernel, 1, kThreads, 0, stream, parts, SquareParts(count), sum);
}

CudaResult Convert(const ConvertRows& c, CudaStream stream) {
  if (!IsFloating(c.from_type) || !IsFloating(c.to_type)) return kInvalidValue;
  const bool wide = c.from_type == ElementType::kFloat64 || c.to_type == ElementType::kFloat64;
  return wide ? LaunchConvert<double>(c, stream) : LaunchConvert<float>(c, stream);
}

}  // namespace muster::cuda
