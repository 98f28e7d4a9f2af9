// Conversions between float and the 16-bit formats of weights, to nearest with ties to even.
//
// Pure functions over bit patterns; any thread. A NaN stays a NaN and overflow becomes infinity,
// as in PyTorch, so that files written here and there agree bit for bit.
#pragma once

#include <bit>
#include <cstdint>

namespace muster {

inline float BFloat16ToFloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t FloatToBFloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;  // NaN, never rounded to infinity
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float Float16ToFloat(std::uint16_t bits);
std::uint16_t FloatToFloat16(float value);

}  // namespace muster
