#include "trainer/distributed/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace muster {
namespace {

std::uint16_t Narrowed(float value) {
  std::uint16_t bits = 0;
  NarrowToBFloat16(&value, &bits, 1);
  return bits;
}

TEST(Reduce, BFloat16RoundsToNearestEven) {
  EXPECT_EQ(Narrowed(1.0F), 0x3f80);
  EXPECT_EQ(Narrowed(1.00390625F), 0x3f80);  // half way, down to even
  EXPECT_EQ(Narrowed(1.01171875F), 0x3f82);  // half way, up to even
  EXPECT_EQ(Narrowed(-2.0F), 0xc000);
  EXPECT_EQ(Narrowed(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_EQ(Narrowed(std::numeric_limits<float>::max()), 0x7f80);
  const std::uint16_t nan = Narrowed(std::nanf(""));
  float wide = 0;
  WidenBFloat16(&nan, &wide, 1);
  EXPECT_TRUE(std::isnan(wide));
}

TEST(Reduce, OutputMayBeAnInput) {
  std::vector<float> a = {1, 5, 3};
  const std::vector<float> b = {4, 2, 6};
  Reduce(a.data(), b.data(), a.data(), 3, ElementType::kFloat32, ReduceOp::kMax);
  EXPECT_EQ(a, (std::vector<float>{4, 5, 6}));
  Reduce(b.data(), a.data(), a.data(), 3, ElementType::kFloat32, ReduceOp::kMin);
  EXPECT_EQ(a, (std::vector<float>{4, 2, 6}));
  Reduce(a.data(), b.data(), a.data(), 3, ElementType::kFloat32, ReduceOp::kSum);
  EXPECT_EQ(a, (std::vector<float>{8, 4, 12}));
}

}  // namespace
}  // namespace muster
