// The element types of weights, activations and optimizer state, and how kernels read and write
// them: every kernel computes in Wide<Element> and rounds once when it stores.
//
// Pure; any thread.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace muster {

// Upper half of an IEEE single: 8 exponent bits, 7 fraction bits.
struct BFloat16 {
  std::uint16_t bits;
};

// IEEE half precision: 5 exponent bits, 10 fraction bits.
struct Float16 {
  std::uint16_t bits;
};

// What arithmetic on an element is done in.
template <typename Element>
struct WideOf {
  using Type = float;
};
template <>
struct WideOf<double> {
  using Type = double;
};
template <typename Element>
using Wide = typename WideOf<Element>::Type;

#define MUSTER_INLINE inline __attribute__((always_inline))
// For functions that kernels of a GPU call as well.
#if defined(__CUDACC__)
#define MUSTER_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define MUSTER_HOST_DEVICE MUSTER_INLINE
#endif

MUSTER_INLINE double Load(double value) { return value; }
MUSTER_INLINE float Load(float value) { return value; }
MUSTER_INLINE float Load(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
// All bits where the condition holds: choices by arithmetic, so that loops over them are
// vectorised.
MUSTER_INLINE std::uint32_t Mask(bool condition) {
  return 0u - static_cast<std::uint32_t>(condition);
}
// No arithmetic on subnormal singles, which processors do slowly: a subnormal half is read as the
// fraction of 2^-14 and freed of that by a subtraction.
MUSTER_INLINE float Load(Float16 value) {
  const std::uint32_t bits = value.bits;
  const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
  const std::uint32_t special = Mask(magnitude >= 0x0f800000u);
  const std::uint32_t normal = magnitude + 0x38000000u + (special & 0x38000000u);
  const float fraction = std::bit_cast<float>(magnitude + 0x38800000u) - 0x1p-14f;
  const std::uint32_t is_small = Mask(magnitude < 0x00800000u);
  const std::uint32_t widened =
      (normal & ~is_small) | (std::bit_cast<std::uint32_t>(fraction) & is_small);
  return std::bit_cast<float>(widened | (bits & 0x8000u) << 16);
}

// To nearest, ties to even; NaN stays NaN.
MUSTER_INLINE void Store(double* to, double value) { *to = value; }
MUSTER_INLINE void Store(float* to, float value) { *to = value; }
MUSTER_INLINE void Store(BFloat16* to, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t is_nan = Mask(value != value);
  to->bits = static_cast<std::uint16_t>((rounded & ~is_nan) | (0x7fc0u & is_nan));
}
// Values beyond 65504 become infinite, as the format has it: that is what dynamic loss scaling
// looks for.
MUSTER_INLINE void Store(Float16* to, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Subnormal halves: adding 0.5 makes the hardware round at the right bit.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  const std::uint32_t small = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
  const std::uint32_t normal = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t is_small = Mask(magnitude < 0x38800000u);
  const std::uint32_t is_large = Mask(magnitude >= 0x477ff000u);
  const std::uint32_t is_nan = Mask(value != value);
  const std::uint32_t finite = (small & is_small) | (normal & ~is_small);
  const std::uint32_t half = (finite & ~is_large) | (0x7c00u & is_large) | (0x0200u & is_nan);
  to->bits = static_cast<std::uint16_t>(sign | half);
}

// fp64 to a narrow type rounds once: the single in between is rounded to odd, so its last
// bit shows on which side of a tie the value lies.
MUSTER_INLINE float RoundToOdd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  const bool keep = back == value || (bits & 1u) != 0;
  const bool outwards = (value < 0 ? -value : value) > (back < 0 ? -back : back);
  return std::bit_cast<float>(keep ? bits : outwards ? bits + 1 : bits - 1);
}
MUSTER_INLINE void Store(float* to, double value) { *to = static_cast<float>(value); }
MUSTER_INLINE void Store(BFloat16* to, double value) { Store(to, RoundToOdd(value)); }
MUSTER_INLINE void Store(Float16* to, double value) { Store(to, RoundToOdd(value)); }

// What storing and loading again makes of a value.
template <typename Element>
MUSTER_INLINE Wide<Element> Rounded(Wide<Element> value) {
  Element stored;
  Store(&stored, value);
  return Load(stored);
}

}  // namespace muster
