// What the inner loops of the kernels share: sums over a row, exponentials and hyperbolic tangents,
// written so that compilers vectorise them. Private to this folder.
//
// Pure; any thread.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "trainer/core/element.h"

namespace muster {

// Partial sums are kept in this many lanes, whatever the width of the machine's vectors: the order
// of additions is fixed, and a loop may be vectorised without permission to reorder.
inline constexpr int kLanes = 32;

// term(0) + ... + term(count - 1), in lanes.
template <typename Real, typename Term>
MUSTER_INLINE Real SumOver(std::int64_t count, Term term) {
  Real lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  }
  for (; i < count; ++i) lanes[i % kLanes] += term(i);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

// e^x to about one unit in the last place. NaN stays NaN; 0 below -87.3, infinite from 88.4.
MUSTER_INLINE float Exp(float x) {
  constexpr float kLowest = -87.3365f;
  const float lifted = x < kLowest ? kLowest : x;
  const float y = lifted > 89.0f ? 89.0f : lifted;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  constexpr float kShift = 0x1.8p23f;
  const float shifted = y * 1.44269504f + kShift;
  const float n = shifted - kShift;
  const float r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float value = p * (r * r) + r + 1.0f;
  const auto exponent = (std::bit_cast<std::uint32_t>(shifted) + 127u) << 23;
  const float power = value * std::bit_cast<float>(exponent);
  return x < kLowest ? 0.0f : power;
}
// For checks of the arithmetic, not for speed.
MUSTER_INLINE double Exp(double x) { return std::exp(x); }

// The hyperbolic tangent to three units in the last place; NaN stays NaN. Near 0, where
// 1 - 2 / (e^2x + 1) would cancel, x plus x^3 times the minimax polynomial of the rest on
// [-0.625, 0.625].
MUSTER_INLINE float Tanh(float x) {
  const float square = x * x;
  float p = 2.1429616e-3f;
  p = p * square - 8.1773978e-3f;
  p = p * square + 2.1700703e-2f;
  p = p * square - 5.3946763e-2f;
  p = p * square + 1.33332059e-1f;
  p = p * square - 3.33333313e-1f;
  const float near = x + x * (square * p);
  const float size = x < 0 ? -x : x;
  const float outside = 1.0f - 2.0f / (Exp(2.0f * size) + 1.0f);
  const float far = x < 0 ? -outside : outside;
  return size < 0.625f ? near : far;
}
MUSTER_INLINE double Tanh(double x) { return std::tanh(x); }

}  // namespace muster
