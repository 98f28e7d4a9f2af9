#include "trainer/core/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace muster {
namespace {

TEST(Exp, IsWithinTwoUnitsInTheLastPlace) {
  for (int i = 0; i < 200'000; ++i) {
    const float x = -87.3f + 175.6f * static_cast<float>(i) / 200'000;
    const double want = std::exp(static_cast<double>(x));
    ASSERT_NEAR(Exp(x) / want, 1.0, 2.4e-7) << x;
  }
}

TEST(Exp, HasTheLimitsOfTheExponential) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-inf), 0.0f);
  EXPECT_EQ(Exp(-88.0f), 0.0f);
  EXPECT_EQ(Exp(inf), inf);
  EXPECT_EQ(Exp(1000.0f), inf);
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Tanh, IsWithinThreeUnitsInTheLastPlace) {
  for (int i = -200'000; i <= 200'000; ++i) {
    for (const double size : {1.0, 1e-3, 10.0}) {
      const float x = static_cast<float>(size * i / 200'000);
      const double want = std::tanh(static_cast<double>(x));
      ASSERT_NEAR(Tanh(x), want, 3.6e-7 * std::abs(want)) << x;
    }
  }
}

TEST(Tanh, HasTheLimitsOfTheTangent) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Tanh(0.0f), 0.0f);
  EXPECT_EQ(Tanh(inf), 1.0f);
  EXPECT_EQ(Tanh(-inf), -1.0f);
  EXPECT_TRUE(std::isnan(Tanh(std::numeric_limits<float>::quiet_NaN())));
}

TEST(SumOver, AddsEveryTermWhateverTheCount) {
  for (const std::int64_t count : {0, 1, 31, 32, 33, 64, 1000}) {
    std::vector<int> visits(static_cast<std::size_t>(count));
    const double sum = SumOver<double>(count, [&](std::int64_t i) {
      ++visits[static_cast<std::size_t>(i)];
      return static_cast<double>(i);
    });
    EXPECT_EQ(sum, static_cast<double>(count * (count - 1) / 2));
    EXPECT_EQ(visits, std::vector<int>(static_cast<std::size_t>(count), 1));
  }
}

}  // namespace
}  // namespace muster
