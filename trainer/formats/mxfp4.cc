#include "trainer/formats/mxfp4.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace muster {
namespace {

constexpr float kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
constexpr int kLargestExponent = 2;  // of 4 and 6
constexpr int kBias = 127;
constexpr int kNoNumber = 255;
constexpr std::uint8_t kSign = 8;

float ValueOf(unsigned code, float scale) {
  const float magnitude = kMagnitudes[code & 7] * scale;
  return (code & kSign) != 0 ? -magnitude : magnitude;
}

// The code of the nearest of the magnitudes, `x` in their unit.
std::uint8_t Nearest(float x) {
  // How many of the points halfway between neighbours are passed; on a point the even code counts.
  return static_cast<std::uint8_t>((x > 0.25F) + (x >= 0.75F) + (x > 1.25F) + (x >= 1.75F) +
                                   (x > 2.5F) + (x >= 3.5F) + (x > 5.0F));
}

// What a block becomes with one scale.
struct Block {
  int exponent = 0;
  double error = 0;  // squared
  std::uint8_t codes[kMxfp4Block] = {};
};

Block Quantize(const float* values, int exponent) {
  Block block{.exponent = exponent};
  const float scale = std::ldexp(1.0F, exponent), unit = std::ldexp(1.0F, -exponent);
  for (std::int64_t i = 0; i < kMxfp4Block; ++i) {
    const std::uint8_t magnitude = Nearest(std::fabs(values[i]) * unit);
    block.codes[i] =
        static_cast<std::uint8_t>(magnitude | (std::signbit(values[i]) ? kSign : std::uint8_t{0}));
    const double difference = double{values[i]} - ValueOf(block.codes[i], scale);
    block.error += difference * difference;
  }
  return block;
}

}  // namespace

std::string ErrorText(const Mxfp4Error& error) {
  char text[96];
  const double relative = error.values > 0 ? std::sqrt(error.errors / error.values) : 0;
  std::snprintf(text, sizeof text, "experts in MXFP4: relative error %.2e (root mean square)",
                relative);
  return text;
}

void DequantizeMxfp4(const void* codes, const void* scales, std::int64_t blocks, float* values) {
  const auto* bytes = static_cast<const std::uint8_t*>(codes);
  const auto* exponents = static_cast<const std::uint8_t*>(scales);
  for (std::int64_t b = 0; b < blocks; ++b) {
    const float scale = exponents[b] == kNoNumber ? std::numeric_limits<float>::quiet_NaN()
                                                  : std::ldexp(1.0F, exponents[b] - kBias);
    for (std::int64_t i = 0; i < kMxfp4Bytes; ++i) {
      const std::uint8_t two = bytes[b * kMxfp4Bytes + i];
      values[b * kMxfp4Block + 2 * i] = ValueOf(two & 15, scale);
      values[b * kMxfp4Block + 2 * i + 1] = ValueOf(two >> 4, scale);
    }
  }
}

void QuantizeMxfp4(const float* values, std::int64_t blocks, void* codes, void* scales,
                   Mxfp4Error* error) {
  auto* bytes = static_cast<std::uint8_t*>(codes);
  auto* exponents = static_cast<std::uint8_t*>(scales);
  for (std::int64_t b = 0; b < blocks; ++b, values += kMxfp4Block) {
    float largest = 0;
    for (std::int64_t i = 0; i < kMxfp4Block; ++i) {
      largest = std::max(largest, std::fabs(values[i]));
      error->values += double{values[i]} * values[i];
    }
    const int exponent =
        std::max(-kBias, largest > 0 ? std::ilogb(largest) - kLargestExponent : -kBias);
    Block best = Quantize(values, exponent);
    if (const Block next = Quantize(values, exponent + 1); next.error < best.error) best = next;
    error->errors += best.error;
    exponents[b] = static_cast<std::uint8_t>(best.exponent + kBias);
    for (std::int64_t i = 0; i < kMxfp4Bytes; ++i) {
      bytes[b * kMxfp4Bytes + i] =
          static_cast<std::uint8_t>(best.codes[2 * i] | best.codes[2 * i + 1] << 4);
    }
  }
}

}  // namespace muster
