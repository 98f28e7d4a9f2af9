#include "trainer/formats/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace muster {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(HalfTest, EveryFloat16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = Float16ToFloat(half);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(Float16ToFloat(FloatToFloat16(value))));
    else
      EXPECT_EQ(FloatToFloat16(value), half);
  }
}

TEST(HalfTest, EveryBFloat16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = BFloat16ToFloat(half);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(value))));
    else
      EXPECT_EQ(FloatToBFloat16(value), half);
  }
}

// Between every two neighbouring halves: the midpoint goes to the even one, its neighbours to the
// nearer one.
template <typename ToHalf, typename ToFloat>
void ExpectNearestEven(ToHalf to_half, ToFloat to_float, std::uint16_t last_finite) {
  for (std::uint16_t low = 0; low < last_finite; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const float middle = to_float(low) + (to_float(high) - to_float(low)) / 2;
    const std::uint16_t even = low % 2 == 0 ? low : high;
    ASSERT_EQ(to_half(middle), even) << low;
    ASSERT_EQ(to_half(std::nextafterf(middle, kInfinity)), high) << low;
    ASSERT_EQ(to_half(std::nextafterf(middle, -kInfinity)), low) << low;
    ASSERT_EQ(to_half(-middle), even | 0x8000) << low;
  }
}

TEST(HalfTest, Float16RoundsToNearestEven) {
  ExpectNearestEven(FloatToFloat16, Float16ToFloat, 0x7bff);
}

// bfloat16's subnormals have no midpoint in float, so the walk begins at the normal ones.
TEST(HalfTest, BFloat16RoundsToNearestEven) {
  for (const std::uint16_t low : {0x0080, 0x3f80, 0x3f81, 0x4000, 0x7f7e}) {
    const float a = BFloat16ToFloat(low);
    const float b = BFloat16ToFloat(static_cast<std::uint16_t>(low + 1));
    const float middle = a + (b - a) / 2;
    EXPECT_EQ(FloatToBFloat16(middle), low % 2 == 0 ? low : low + 1);
    EXPECT_EQ(FloatToBFloat16(std::nextafterf(middle, 0.0f)), low);
    EXPECT_EQ(FloatToBFloat16(std::nextafterf(middle, kInfinity)), low + 1);
  }
}

TEST(HalfTest, OverflowIsInfinity) {
  EXPECT_EQ(FloatToFloat16(65504.0f), 0x7bff);
  EXPECT_EQ(FloatToFloat16(65519.996f), 0x7bff);
  EXPECT_EQ(FloatToFloat16(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToFloat16(-1e9f), 0xfc00);
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(FloatToBFloat16(-kInfinity), 0xff80);
}

}  // namespace
}  // namespace muster
