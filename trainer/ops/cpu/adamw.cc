#include "trainer/ops/adamw.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "trainer/core/convert.h"
#include "trainer/core/stream_copy.h"
#include "trainer/ops/cpu/kernel.h"

namespace muster {
namespace {

// Arrays of other types pass through scratch of this many elements, and the low-precision copy is
// written while the weights are still in the first-level cache. Where an update reads one slot and
// writes another, what it writes passes through scratch as well and then streams past the caches:
// it is read a whole step later, and lines that are overwritten need not be fetched.
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
  const Real* old_weight;  // each its new array or apart from it
  const Real* old_exp_avg;
  const Real* old_exp_avg_sq;
  Real* weight;
  Real* exp_avg;
  Real* exp_avg_sq;
  const Real* gradient;
};

template <typename Real>
MUSTER_INLINE void UpdateElements(const Run<Real>& run, std::int64_t count,
                                  const Coefficients<Real>& coefficients) {
  const Coefficients<Real> c = coefficients;
  const Run<Real> r = run;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const Real g = r.gradient[i] * c.gradient_scale;
    const Real m = r.old_exp_avg[i] + (g - r.old_exp_avg[i]) * c.beta1_rest;
    const Real v = r.old_exp_avg_sq[i] * c.beta2 + g * g * c.beta2_rest;
    const Real denominator = std::sqrt(v) / c.correction2_root + c.eps;
    r.weight[i] = r.old_weight[i] * c.decay - c.step_size * (m / denominator);
    r.exp_avg[i] = m;
    r.exp_avg_sq[i] = v;
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

template <typename Real>
constexpr ElementType kRealType = sizeof(Real) == sizeof(double) ? ElementType::kFloat64
                                                                 : ElementType::kFloat32;

template <typename Memory>
auto* At(Memory* array, ElementType type, std::int64_t index) {
  using Byte = std::conditional_t<std::is_const_v<Memory>, const std::byte, std::byte>;
  return static_cast<Byte*>(array) + static_cast<std::size_t>(index) * ElementSize(type);
}

// A run of an array that is read, in Real: where it lies if that is its type, else in scratch.
template <typename Real>
class WideInput {
 public:
  WideInput(const void* array, ElementType type, std::int64_t begin, std::int64_t count) {
    const std::byte* stored = At(array, type, begin);
    if (type == kRealType<Real>) {
      data_ = reinterpret_cast<const Real*>(stored);
    } else {
      Convert(stored, type, scratch_, kRealType<Real>, count, false);
      data_ = scratch_;
    }
  }
  const Real* data() const { return data_; }

 private:
  const Real* data_;
  Real scratch_[kRun];
};

// The same of one that is written. `streams`: it is not the array that was read.
template <typename Real>
class WideOutput {
 public:
  WideOutput(void* array, ElementType type, std::int64_t begin, std::int64_t count, bool streams)
      : stored_(At(array, type, begin)), type_(type), count_(count), streams_(streams) {}

  Real* data() { return same() && !streams_ ? reinterpret_cast<Real*>(stored_) : scratch_; }
  void Store() {
    if (!same())
      Convert(scratch_, kRealType<Real>, stored_, type_, count_, false);
    else if (streams_)
      StreamPiece(stored_, scratch_, static_cast<std::size_t>(count_) * sizeof(Real));
  }
  // What Store has stored.
  const void* stored() { return same() ? data() : static_cast<const void*>(stored_); }

 private:
  bool same() const { return type_ == kRealType<Real>; }

  std::byte* stored_;
  ElementType type_;
  std::int64_t count_;
  bool streams_;
  alignas(64) Real scratch_[kRun];
};

const void* Or(const void* old, const void* in_place) { return old != nullptr ? old : in_place; }

template <typename Real>
void UpdateAs(const OptimizerArrays& a, std::int64_t begin, std::int64_t end,
              const AdamWOptions& options, const AdamWStep& step) {
  const Coefficients<Real> coefficients = CoefficientsOf<Real>(options, step);
  const void* old_weight = Or(a.old_weight, a.weight);
  const void* old_exp_avg = Or(a.old_exp_avg, a.exp_avg);
  const void* old_exp_avg_sq = Or(a.old_exp_avg_sq, a.exp_avg_sq);
  const bool streams = old_weight != a.weight;
  for (std::int64_t at = begin; at < end; at += kRun) {
    const std::int64_t count = std::min(kRun, end - at);
    const WideInput<Real> from_weight(old_weight, a.weight_type, at, count);
    const WideInput<Real> from_exp_avg(old_exp_avg, a.moment_type, at, count);
    const WideInput<Real> from_exp_avg_sq(old_exp_avg_sq, a.moment_type, at, count);
    const WideInput<Real> gradient(a.gradient, a.gradient_type, at, count);
    WideOutput<Real> weight(a.weight, a.weight_type, at, count, streams);
    WideOutput<Real> exp_avg(a.exp_avg, a.moment_type, at, count, streams);
    WideOutput<Real> exp_avg_sq(a.exp_avg_sq, a.moment_type, at, count, streams);
    Update({from_weight.data(), from_exp_avg.data(), from_exp_avg_sq.data(), weight.data(),
            exp_avg.data(), exp_avg_sq.data(), gradient.data()},
           count, coefficients);
    weight.Store();
    exp_avg.Store();
    exp_avg_sq.Store();
    if (a.low_precision == nullptr) continue;
    // From the stored weight: a resumed run makes the same low-precision copy of it.
    Convert(weight.stored(), a.weight_type, At(a.low_precision, a.low_precision_type, at),
            a.low_precision_type, count, false);
  }
  if (streams) StreamFence();
}

}  // namespace

namespace op {

void RunOnCpu(const AdamW& a) {
  const bool wide = a.arrays.weight_type == ElementType::kFloat64 ||
                    a.arrays.moment_type == ElementType::kFloat64;
  OverRanges(a.arrays.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    const auto update = wide ? UpdateAs<double> : UpdateAs<float>;
    update(a.arrays, begin, end, a.options, a.step);
  });
}

}  // namespace op

template void CpuKernel<op::AdamW>(const void*);

}  // namespace muster
