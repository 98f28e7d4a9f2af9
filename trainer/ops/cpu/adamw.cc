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
// written while the weights are still in the first-level cache.
constexpr std::int64_t kRun = 1024;
// Where an update reads one slot and writes another, what it writes passes through scratch and then
// streams past the caches: it is read a whole step later, and lines that are overwritten need not
// be fetched. In pieces of so many elements, since the stores of one piece drain while the next is
// divided.
constexpr std::int64_t kPiece = 64;

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
struct Output {
  Real* data;
  Real* streamed;  // what else is written, past the caches; null: nothing
};

template <typename Real>
struct Run {
  const Real* old_weight;  // each its output or apart from it
  const Real* old_exp_avg;
  const Real* old_exp_avg_sq;
  Output<Real> weight;
  Output<Real> exp_avg;
  Output<Real> exp_avg_sq;
  const Real* gradient;
};

template <typename Real>
MUSTER_INLINE void UpdatePiece(const Run<Real>& run, std::int64_t begin, std::int64_t count,
                               const Coefficients<Real>& coefficients) {
  const Coefficients<Real> c = coefficients;
  const Run<Real> r = run;
#pragma GCC ivdep
  for (std::int64_t i = begin; i < begin + count; ++i) {
    const Real g = r.gradient[i] * c.gradient_scale;
    const Real m = r.old_exp_avg[i] + (g - r.old_exp_avg[i]) * c.beta1_rest;
    const Real v = r.old_exp_avg_sq[i] * c.beta2 + g * g * c.beta2_rest;
    const Real denominator = std::sqrt(v) / c.correction2_root + c.eps;
    r.weight.data[i] = r.old_weight[i] * c.decay - c.step_size * (m / denominator);
    r.exp_avg.data[i] = m;
    r.exp_avg_sq.data[i] = v;
  }
  for (const Output<Real>& output : {r.weight, r.exp_avg, r.exp_avg_sq}) {
    if (output.streamed == nullptr) continue;
    StreamPiece(output.streamed + begin, output.data + begin,
                static_cast<std::size_t>(count) * sizeof(Real));
  }
}

template <typename Real>
MUSTER_INLINE void UpdateElements(const Run<Real>& run, std::int64_t count,
                                  const Coefficients<Real>& coefficients) {
  std::int64_t at = 0;
  for (; at + kPiece <= count; at += kPiece) UpdatePiece(run, at, kPiece, coefficients);
  if (at < count) UpdatePiece(run, at, count - at, coefficients);
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

// The same of one that is written. `streams`: it is not the array that was read; then the same in
// Real is also written to `copy`, if there is one.
template <typename Real>
class WideOutput {
 public:
  WideOutput(void* array, ElementType type, std::int64_t begin, std::int64_t count, bool streams,
             Real* copy = nullptr)
      : stored_(At(array, type, begin)), type_(type), count_(count) {
    auto* same = type == kRealType<Real> ? reinterpret_cast<Real*>(stored_) : nullptr;
    output_ = {.data = scratch_, .streamed = streams ? same : nullptr};
    if (output_.streamed != nullptr && copy != nullptr) output_.data = copy;
    if (same != nullptr && !streams) output_.data = same;
  }
  WideOutput(const WideOutput&) = delete;
  WideOutput& operator=(const WideOutput&) = delete;

  const Output<Real>& output() const { return output_; }
  void Store() {
    if (type_ != kRealType<Real>) Convert(scratch_, kRealType<Real>, stored_, type_, count_, false);
  }
  // What Store has stored.
  const void* stored() const {
    if (type_ == kRealType<Real>) return output_.data;
    return stored_;
  }

 private:
  std::byte* stored_;
  ElementType type_;
  std::int64_t count_;
  Output<Real> output_;
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
    std::byte* low_precision =
        a.low_precision != nullptr ? At(a.low_precision, a.low_precision_type, at) : nullptr;
    auto* copy =
        a.low_precision_type == kRealType<Real> ? reinterpret_cast<Real*>(low_precision) : nullptr;
    WideOutput<Real> weight(a.weight, a.weight_type, at, count, streams, copy);
    WideOutput<Real> exp_avg(a.exp_avg, a.moment_type, at, count, streams);
    WideOutput<Real> exp_avg_sq(a.exp_avg_sq, a.moment_type, at, count, streams);
    Update({from_weight.data(), from_exp_avg.data(), from_exp_avg_sq.data(), weight.output(),
            exp_avg.output(), exp_avg_sq.output(), gradient.data()},
           count, coefficients);
    weight.Store();
    exp_avg.Store();
    exp_avg_sq.Store();
    if (low_precision == nullptr || weight.stored() == low_precision) continue;
    // From the stored weight: a resumed run makes the same low-precision copy of it.
    Convert(weight.stored(), a.weight_type, low_precision, a.low_precision_type, count, false);
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
