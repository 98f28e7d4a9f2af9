#include "trainer/state/checkpoint/element_convert.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

namespace muster {
namespace {

constexpr std::array kFloats = {ElementType::kBFloat16, ElementType::kFloat16,
                                ElementType::kFloat32, ElementType::kFloat64};

std::vector<double> Through(ElementType type, const std::vector<double>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<char> stored(values.size() * ElementSize(type));
  std::vector<double> back(values.size());
  ConvertElements(values.data(), ElementType::kFloat64, stored.data(), type, count);
  ConvertElements(stored.data(), type, back.data(), ElementType::kFloat64, count);
  return back;
}

TEST(ElementConvert, WhatEveryTypeHoldsPassesThroughAll) {
  const std::vector<double> values = {0.0, -0.0, 1.0, -1.5, 0.0078125, 255.0, INFINITY};
  for (const ElementType type : kFloats) EXPECT_EQ(Through(type, values), values);
}

TEST(ElementConvert, RoundsToNearestEven) {
  EXPECT_EQ(Through(ElementType::kBFloat16, {1.00390625, 1.01171875}),
            (std::vector<double>{1.0, 1.015625}));
  EXPECT_EQ(Through(ElementType::kFloat32, {1.0 + std::pow(2.0, -30)}), std::vector<double>{1.0});
  EXPECT_EQ(Through(ElementType::kFloat64, {1.0 + std::pow(2.0, -50)}),
            std::vector<double>{1.0 + std::pow(2.0, -50)});
}

// By way of fp32 both would first become ties, and then even.
TEST(ElementConvert, NothingIsRoundedTwice) {
  EXPECT_EQ(Through(ElementType::kBFloat16, {1 + 0x1p-8 + 0x1p-40}),
            std::vector<double>{1 + 0x1p-7});
  EXPECT_EQ(Through(ElementType::kFloat16, {1 + 0x1p-11 + 0x1p-40}),
            std::vector<double>{1 + 0x1p-10});
}

TEST(ElementConvert, EqualTypesKeepEveryBit) {
  const std::array<std::uint32_t, 2> nans = {0x7fc00001u, 0xffffffffu};
  std::array<std::uint32_t, 2> out{};
  ConvertElements(nans.data(), ElementType::kFloat32, out.data(), ElementType::kFloat32, 2);
  EXPECT_EQ(out, nans);
}

TEST(ElementConvert, IntegersConvertToThemselvesAlone) {
  EXPECT_TRUE(CanConvert(ElementType::kInt64, ElementType::kInt64));
  EXPECT_FALSE(CanConvert(ElementType::kInt64, ElementType::kFloat32));
  EXPECT_FALSE(CanConvert(ElementType::kFloat32, ElementType::kUint8));
  EXPECT_TRUE(CanConvert(ElementType::kBFloat16, ElementType::kFloat64));
}

}  // namespace
}  // namespace muster
