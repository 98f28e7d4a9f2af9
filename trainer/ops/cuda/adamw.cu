// AdamW over flat arrays: a thread has a run of elements.
#include "trainer/ops/adamw.h"

#include "trainer/ops/cuda/flat.cuh"

namespace muster::cuda {
inline namespace adamw_kernels {

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
    return Launch(AdamWKernel<Real, kRun>, BlocksFor(a.count, kFlatThreads * kRun), kFlatThreads, 0,
                  stream, a, c);
  }
  return Launch(AdamWKernel<Real, 1>, BlocksFor(a.count, kFlatThreads), kFlatThreads, 0, stream, a,
                c);
}

}  // namespace adamw_kernels

CudaResult RunOnCuda(const op::AdamW& adamw, KernelScope& scope) {
  OptimizerArrays a = adamw.arrays;
  for (const ElementType type :
       {a.weight_type, a.moment_type, a.gradient_type, a.low_precision_type}) {
    if (!IsFloating(type)) return kInvalidValue;
  }
  const bool wide =
      a.weight_type == ElementType::kFloat64 || a.moment_type == ElementType::kFloat64;
  if (a.old_weight == nullptr) a.old_weight = a.weight;
  if (a.old_exp_avg == nullptr) a.old_exp_avg = a.exp_avg;
  if (a.old_exp_avg_sq == nullptr) a.old_exp_avg_sq = a.exp_avg_sq;
  return wide ? LaunchAdamW<double>(a, adamw.options, adamw.step, scope.stream())
              : LaunchAdamW<float>(a, adamw.options, adamw.step, scope.stream());
}

template CudaResult CudaKernel<op::AdamW>(const void*, KernelScope&);

}  // namespace muster::cuda
