#include "trainer/kernels/adamw.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "trainer/kernels/convert.h"
#include "trainer/kernels/vector_clones.h"

namespace muster {
namespace {

// Arrays of other types pass through scratch of this many elements, and the shadow is written while
// the weights are still in the first-level cache.
constexpr std::int64_t kRun = 1024;

template <typename Real>
struct Coefficients {
  Real decay;
  Real beta1_rest;
  Real beta2;
  Real beta2_rest;
  Real step_size;
  Real correction2_root;
  Real eps;
  Real gradient_scale;
};

template <typename Real>
Coefficients<Real> CoefficientsOf(const AdamWOptions& options, const AdamWStep& step) {
  const double number = static_cast<double>(step.number);
  const double correction1 = 1.0 - std::pow(options.beta1, number);
  const double correction2 = 1.0 - std::pow(options.beta2, number);
  return {
      .decay = static_cast<Real>(1.0 - step.lr * options.weight_decay),
      .beta1_rest = static_cast<Real>(1.0 - options.beta1),
      .beta2 = static_cast<Real>(options.beta2),
      .beta2_rest = static_cast<Real>(1.0 - options.beta2),
      .step_size = static_cast<Real>(step.lr / correction1),
      .correction2_root = static_cast<Real>(std::sqrt(correction2)),
      .eps = static_cast<Real>(options.eps),
      .gradient_scale = static_cast<Real>(step.gradient_scale),
  };
}

template <typename Real>
struct Run {
  Real* weight;
  Real* exp_avg;
  Real* exp_avg_sq;
  const Real* gradient;
};

template <typename Real>
MUSTER_INLINE void UpdateElements(const Run<Real>& run, std::int64_t count,
                                  const Coefficients<Real>& coefficients) {
  const Coefficients<Real> c = coefficients;
  Real* __restrict weight = run.weight;
  Real* __restrict exp_avg = run.exp_avg;
  Real* __restrict exp_avg_sq = run.exp_avg_sq;
  const Real* __restrict gradient = run.gradient;
  for (std::int64_t i = 0; i < count; ++i) {
    const Real g = gradient[i] * c.gradient_scale;
    const Real m = exp_avg[i] + (g - exp_avg[i]) * c.beta1_rest;
    const Real v = exp_avg_sq[i] * c.beta2 + g * g * c.beta2_rest;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    const Real denominator = std::sqrt(v) / c.correction2_root + c.eps;
    weight[i] = weight[i] * c.decay - c.step_size * (m / denominator);
  }
}

MUSTER_VECTOR_CLONES
void Update(const Run<float>& run, std::int64_t count, const Coefficients<float>& coefficients) {
  UpdateElements(run, count, coefficients);
}
MUSTER_VECTOR_CLONES
void Update(const Run<double>& run, std::int64_t count, const Coefficients<double>& coefficients) {
  UpdateElements(run, count, coefficients);
}

std::byte* At(void* array, ElementType type, std::int64_t index) {
  return static_cast<std::byte*>(array) + static_cast<std::size_t>(index) * ElementSize(type);
}

// A run of one array in Real: in place where that is its type, else through scratch.
template <typename Real>
class WideRun {
 public:
  WideRun(void* array, ElementType type, std::int64_t begin, std::int64_t count)
      : stored_(At(array, type, begin)), type_(type), count_(count) {
    if (!in_place()) Convert(stored_, type_, scratch_, kReal, count_, false);
  }

  Real* data() { return in_place() ? reinterpret_cast<Real*>(stored_) : scratch_; }
  void Store() {
    if (!in_place()) Convert(scratch_, kReal, stored_, type_, count_, false);
  }

 private:
  static constexpr ElementType kReal =
      sizeof(Real) == sizeof(double) ? ElementType::kFloat64 : ElementType::kFloat32;

  bool in_place() const { return type_ == kReal; }

  std::byte* stored_;
  ElementType type_;
  std::int64_t count_;
  Real scratch_[kRun];
};

template <typename Real>
void UpdateAs(const OptimizerArrays& a, std::int64_t begin, std::int64_t end,
              const AdamWOptions& options, const AdamWStep& step) {
  const Coefficients<Real> coefficients = CoefficientsOf<Real>(options, step);
  for (std::int64_t at = begin; at < end; at += kRun) {
    const std::int64_t count = std::min(kRun, end - at);
    WideRun<Real> weight(a.weight, a.weight_type, at, count);
    WideRun<Real> exp_avg(a.exp_avg, a.moment_type, at, count);
    WideRun<Real> exp_avg_sq(a.exp_avg_sq, a.moment_type, at, count);
    // Only read; the class is for arrays that are written as well.
    WideRun<Real> gradient(const_cast<void*>(a.gradient), a.gradient_type, at, count);
    Update({weight.data(), exp_avg.data(), exp_avg_sq.data(), gradient.data()}, count,
           coefficients);
    weight.Store();
    exp_avg.Store();
    exp_avg_sq.Store();
    if (a.shadow == nullptr) continue;
    // From the stored weight: a resumed run makes the same shadow of it.
    Convert(At(a.weight, a.weight_type, at), a.weight_type, At(a.shadow, a.shadow_type, at),
            a.shadow_type, count, false);
  }
}

}  // namespace

void AdamWUpdate(const OptimizerArrays& arrays, std::int64_t begin, std::int64_t end,
                 const AdamWOptions& options, const AdamWStep& step) {
  if (arrays.weight_type == ElementType::kFloat64 || arrays.moment_type == ElementType::kFloat64) {
    UpdateAs<double>(arrays, begin, end, options, step);
  } else {
    UpdateAs<float>(arrays, begin, end, options, step);
  }
}

}  // namespace muster
