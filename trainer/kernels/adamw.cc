#include "trainer/kernels/adamw.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "trainer/kernels/vector_clones.h"

namespace muster {
namespace {

struct Coefficients {
  float decay;
  float beta1_rest;
  float beta2;
  float beta2_rest;
  float step_size;
  float inverse_correction2;
  float eps;
  float gradient_scale;
};

inline std::uint16_t Round(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<std::uint16_t>(is_nan ? 0x7fc0u : rounded);
}

MUSTER_VECTOR_CLONES
void Update(float* __restrict weight, float* __restrict exp_avg, float* __restrict exp_avg_sq,
            const float* __restrict gradient, std::int64_t count, Coefficients c) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * c.gradient_scale;
    const float m = exp_avg[i] + (g - exp_avg[i]) * c.beta1_rest;
    const float v = exp_avg_sq[i] * c.beta2 + g * g * c.beta2_rest;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    const float denominator = std::sqrt(v) * c.inverse_correction2 + c.eps;
    weight[i] = weight[i] * c.decay - c.step_size * (m / denominator);
  }
}

MUSTER_VECTOR_CLONES
void RoundAll(const float* __restrict from, std::uint16_t* __restrict to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = Round(from[i]);
}

MUSTER_VECTOR_CLONES
double BlockSumOfSquares(const float* values, std::int64_t count) {
  double lanes[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int lane = 0; lane < 16; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (; i < count; ++i) lanes[i % 16] += static_cast<double>(values[i]) * values[i];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

void AdamWUpdate(const AdamWArrays& arrays, std::int64_t begin, std::int64_t end,
                 const AdamWOptions& options, const AdamWStep& step) {
  const double number = static_cast<double>(step.number);
  const double correction1 = 1.0 - std::pow(options.beta1, number);
  const double correction2 = 1.0 - std::pow(options.beta2, number);
  const Coefficients c = {
      .decay = static_cast<float>(1.0 - step.lr * options.weight_decay),
      .beta1_rest = static_cast<float>(1.0 - options.beta1),
      .beta2 = static_cast<float>(options.beta2),
      .beta2_rest = static_cast<float>(1.0 - options.beta2),
      .step_size = static_cast<float>(step.lr / correction1),
      .inverse_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
      .eps = static_cast<float>(options.eps),
      .gradient_scale = static_cast<float>(step.gradient_scale),
  };
  // Short runs, so that the shadow is written while the weights are still in the cache.
  constexpr std::int64_t kRun = 4096;
  for (std::int64_t at = begin; at < end; at += kRun) {
    const std::int64_t count = std::min(kRun, end - at);
    Update(arrays.weight + at, arrays.exp_avg + at, arrays.exp_avg_sq + at, arrays.gradient + at,
           count, c);
    if (arrays.shadow != nullptr) RoundAll(arrays.weight + at, arrays.shadow + at, count);
  }
}

void RoundToBFloat16(const float* from, std::uint16_t* to, std::int64_t count) {
  RoundAll(from, to, count);
}

double SumOfSquares(const float* values, std::int64_t count) {
  constexpr std::int64_t kBlock = 1 << 16;
  double sum = 0;
  for (std::int64_t at = 0; at < count; at += kBlock) {
    sum += BlockSumOfSquares(values + at, std::min(kBlock, count - at));
  }
  return sum;
}

}  // namespace muster
