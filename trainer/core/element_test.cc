#include "trainer/core/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace muster {
namespace {

// Value of a half by its definition.
double HalfByDefinition(std::uint16_t bits) {
  const double sign = (bits & 0x8000u) != 0 ? -1 : 1;
  const int exponent = (bits >> 10) & 0x1f;
  const double fraction = (bits & 0x3ffu) / 1024.0;
  if (exponent == 0) return sign * std::ldexp(fraction, -14);
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  return sign * std::ldexp(1 + fraction, exponent - 15);
}

std::uint16_t Half(double value) {
  Float16 stored;
  Store(&stored, value);
  return stored.bits;
}

std::uint16_t Brain(double value) {
  BFloat16 stored;
  Store(&stored, value);
  return stored.bits;
}

TEST(Float16, EveryBitPatternHasItsValueAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const double want = HalfByDefinition(half);
    const float got = Load(Float16{half});
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
      EXPECT_EQ(Half(got) & 0x7fffu, 0x7e00u) << bits;
      continue;
    }
    ASSERT_EQ(got, want) << bits;
    ASSERT_EQ(std::signbit(got), std::signbit(want)) << bits;
    Float16 stored;
    Store(&stored, got);
    ASSERT_EQ(stored.bits, half);
  }
}

// Between two neighbours: the half way point goes to the even one, anything beside it to the
// nearer.
TEST(Float16, RoundsToNearestEvenEverywhere) {
  for (std::uint16_t bits = 0; bits < 0x7bffu; ++bits) {
    const auto next = static_cast<std::uint16_t>(bits + 1);
    const double below = HalfByDefinition(bits), above = HalfByDefinition(next);
    const double middle = (below + above) / 2;
    const std::uint16_t even = bits % 2 == 0 ? bits : next;
    ASSERT_EQ(Half(middle), even) << bits;
    ASSERT_EQ(Half(middle * (1 - 1e-12)), bits) << bits;
    ASSERT_EQ(Half(middle * (1 + 1e-12)), next) << bits;
    Float16 from_single;
    Store(&from_single, static_cast<float>(middle));
    ASSERT_EQ(from_single.bits, even) << bits;
  }
}

TEST(Float16, OverflowsToInfinity) {
  EXPECT_EQ(Half(65519.9), 0x7bff);
  EXPECT_EQ(Half(65520.0), 0x7c00);
  EXPECT_EQ(Half(-1e300), 0xfc00);
}

TEST(BFloat16, RoundsToNearestEvenEverywhere) {
  for (std::uint16_t bits = 0; bits < 0x7f7fu; ++bits) {
    const auto next = static_cast<std::uint16_t>(bits + 1);
    const double below = Load(BFloat16{bits}), above = Load(BFloat16{next});
    const double middle = (below + above) / 2;
    const std::uint16_t even = bits % 2 == 0 ? bits : next;
    ASSERT_EQ(Brain(middle), even) << bits;
    ASSERT_EQ(Brain(-middle), even | 0x8000u) << bits;
    ASSERT_EQ(Brain(middle * (1 - 1e-12)), bits) << bits;
    ASSERT_EQ(Brain(middle * (1 + 1e-12)), next) << bits;
  }
}

TEST(BFloat16, KeepsNanAndInfinity) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Brain(inf), 0x7f80);
  EXPECT_EQ(Brain(-inf), 0xff80);
  EXPECT_EQ(Brain(std::numeric_limits<double>::quiet_NaN()), 0x7fc0);
  // Rounding up must not carry a NaN of all ones into the sign.
  BFloat16 stored;
  Store(&stored, std::bit_cast<float>(0x7fffffffu));
  EXPECT_EQ(stored.bits, 0x7fc0);
}

}  // namespace
}  // namespace muster
