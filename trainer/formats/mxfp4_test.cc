#include "trainer/formats/mxfp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace muster {
namespace {

constexpr float kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

struct Packed {
  std::vector<std::uint8_t> codes, scales;
  Mxfp4Error error;
};

Packed Pack(const std::vector<float>& values) {
  const std::int64_t blocks = std::ssize(values) / kMxfp4Block;
  Packed packed{.codes = std::vector<std::uint8_t>(static_cast<std::size_t>(blocks * kMxfp4Bytes)),
                .scales = std::vector<std::uint8_t>(static_cast<std::size_t>(blocks)),
                .error = {}};
  QuantizeMxfp4(values.data(), blocks, packed.codes.data(), packed.scales.data(), &packed.error);
  return packed;
}

std::vector<float> Unpack(const std::vector<std::uint8_t>& codes,
                          const std::vector<std::uint8_t>& scales) {
  std::vector<float> values(scales.size() * kMxfp4Block);
  DequantizeMxfp4(codes.data(), scales.data(), std::ssize(scales), values.data());
  return values;
}

TEST(Mxfp4Test, EveryCodeIsItsValueTimesTheScaleAndTheLowerHalfComesFirst) {
  std::vector<std::uint8_t> codes;
  for (std::uint8_t pair = 0; pair < 16; ++pair)
    codes.push_back(static_cast<std::uint8_t>(pair | (15 - pair) << 4));
  const std::vector<float> values = Unpack(codes, {130});
  for (std::size_t i = 0; i < 16; ++i) {
    const auto value = [](std::size_t code) {
      return (code > 7 ? -8.0F : 8.0F) * kMagnitudes[code % 8];
    };
    EXPECT_EQ(values[2 * i], value(i));
    EXPECT_EQ(values[2 * i + 1], value(15 - i));
    EXPECT_EQ(std::signbit(values[2 * i]), i > 7);
  }
  EXPECT_TRUE(std::isnan(Unpack(codes, {255})[0]));
  EXPECT_EQ(Unpack(codes, {0})[2], std::ldexp(0.5F, -127));
}

TEST(Mxfp4Test, WhatItCanHoldComesBackExactly) {
  std::mt19937 random(3);
  std::vector<std::uint8_t> codes(64 * kMxfp4Bytes), scales(64);
  for (int largest = 1; largest < 8; ++largest) {
    for (std::uint8_t& code : codes) {
      const auto half = [&] { return random() % (largest + 1) + (random() % 2) * 8; };
      code = static_cast<std::uint8_t>(half() | half() << 4);
    }
    for (std::uint8_t& scale : scales) scale = static_cast<std::uint8_t>(3 + random() % 250);
    const std::vector<float> values = Unpack(codes, scales);
    const Packed packed = Pack(values);
    EXPECT_EQ(Unpack(packed.codes, packed.scales), values) << "up to code " << largest;
    EXPECT_EQ(packed.error.errors, 0);
    EXPECT_GT(packed.error.values, 0);
  }
  const Packed zeros = Pack(std::vector<float>(kMxfp4Block, 0.0F));
  EXPECT_EQ(Unpack(zeros.codes, zeros.scales), std::vector<float>(kMxfp4Block, 0.0F));
}

TEST(Mxfp4Test, OtherNumbersBecomeTheNearestOfAScaleWithTheLeastError) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> values(100 * kMxfp4Block);
  for (float& value : values) value = normal(random);
  const Packed packed = Pack(values);
  const std::vector<float> back = Unpack(packed.codes, packed.scales);
  for (std::size_t b = 0; b < 100; ++b) {
    double best = 1e9, got = 0;
    for (int exponent = -20; exponent < 10; ++exponent) {
      double error = 0;
      for (std::size_t i = b * 32; i < b * 32 + 32; ++i) {
        double nearest = 1e9;
        for (const float magnitude : kMagnitudes)
          nearest = std::min(nearest, std::fabs(std::fabs(double{values[i]}) -
                                                std::ldexp(double{magnitude}, exponent)));
        error += nearest * nearest;
      }
      best = std::min(best, error);
    }
    for (std::size_t i = b * 32; i < b * 32 + 32; ++i)
      got += (double{back[i]} - values[i]) * (double{back[i]} - values[i]);
    EXPECT_NEAR(got, best, 1e-9 * best);
  }
  const double relative = std::sqrt(packed.error.errors / packed.error.values);
  EXPECT_GT(relative, 0.08);
  EXPECT_LT(relative, 0.13);
  EXPECT_EQ(ErrorText({.errors = 0.01, .values = 1}),
            "experts in MXFP4: relative error 1.00e-01 (root mean square)");
}

}  // namespace
}  // namespace muster
