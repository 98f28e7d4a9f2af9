#include "trainer/comm/transport/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "trainer/comm/group/testing/collectives_testing.h"

namespace muster {
namespace {

constexpr ElementType kFloats[] = {ElementType::kBFloat16, ElementType::kFloat16,
                                   ElementType::kFloat32, ElementType::kFloat64};

std::uint16_t Narrowed(float value, ElementType type = ElementType::kBFloat16) {
  std::uint16_t bits = 0;
  Convert({&value, ElementType::kFloat32}, &bits, type, 1);
  return bits;
}

float Widened(std::uint16_t bits, ElementType type = ElementType::kBFloat16) {
  float value = 0;
  Convert({&bits, type}, &value, ElementType::kFloat32, 1);
  return value;
}

TEST(Reduce, BFloat16RoundsToNearestEven) {
  EXPECT_EQ(Narrowed(1.0F), 0x3f80);
  EXPECT_EQ(Narrowed(1.00390625F), 0x3f80);  // half way, down to even
  EXPECT_EQ(Narrowed(1.01171875F), 0x3f82);  // half way, up to even
  EXPECT_EQ(Narrowed(-2.0F), 0xc000);
  EXPECT_EQ(Narrowed(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_EQ(Narrowed(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(Widened(Narrowed(std::nanf("")))));
}

TEST(Reduce, Float16OverflowsToInfinity) {
  EXPECT_EQ(Narrowed(65504.0F, ElementType::kFloat16), 0x7bff);
  EXPECT_EQ(Narrowed(65520.0F, ElementType::kFloat16), 0x7c00);
  const std::array<std::uint16_t, 2> large = {0x7bff, 0x7bff};
  const std::array<Operand, 2> operands = {Operand{&large[0], ElementType::kFloat16},
                                           Operand{&large[1], ElementType::kFloat16}};
  std::uint16_t sum = 0;
  Reduce(operands, ElementType::kFloat16, ReduceOp::kSum, {&sum, ElementType::kFloat16}, 1);
  EXPECT_EQ(sum, 0x7c00);
}

TEST(Reduce, TargetMayBeAnOperand) {
  std::vector<float> a = {1, 5, 3};
  const std::vector<float> b = {4, 2, 6};
  const std::array<Operand, 2> operands = {Operand{a.data()}, Operand{b.data()}};
  const ReduceTarget target = {.data = a.data()};
  Reduce(operands, ElementType::kFloat32, ReduceOp::kMax, target, 3);
  EXPECT_EQ(a, (std::vector<float>{4, 5, 6}));
  Reduce(operands, ElementType::kFloat32, ReduceOp::kMin, target, 3);
  EXPECT_EQ(a, (std::vector<float>{4, 2, 6}));
  Reduce(operands, ElementType::kFloat32, ReduceOp::kSum, target, 3);
  EXPECT_EQ(a, (std::vector<float>{8, 4, 12}));
}

// 256 + 1 + 1 + ...: in bf16 every step rounds back to 256, in fp32 none does.
TEST(Reduce, PartialSumsAreRoundedToTheSumType) {
  const std::array<std::uint16_t, 2> values = {Narrowed(256), Narrowed(1)};
  std::vector<Operand> operands = {{&values[0], ElementType::kBFloat16}};
  for (int i = 0; i < 4; ++i) operands.push_back({&values[1], ElementType::kBFloat16});
  float sum = 0;
  const ReduceTarget target = {.data = &sum};
  Reduce(operands, ElementType::kBFloat16, ReduceOp::kSum, target, 1);
  EXPECT_EQ(sum, 256);
  Reduce(operands, ElementType::kFloat32, ReduceOp::kSum, target, 1);
  EXPECT_EQ(sum, 260);
}

// Every combination of floating types, over block borders, against one element at a time.
TEST(Reduce, AllTypesAgreeWithExactArithmetic) {
  constexpr std::size_t kCount = 2500;
  for (const ElementType full : kFloats) {
    const auto a = testing::Filled(full, 0, kCount);
    const auto b = testing::Filled(full, 1, kCount);
    const std::array<Operand, 2> operands = {Operand{a.data(), full}, Operand{b.data(), full}};
    for (const ElementType sum : kFloats) {
      for (const ElementType shard : kFloats) {
        for (const bool accumulate : {false, true}) {
          auto out = testing::Filled(shard, 2, kCount);
          Reduce(operands, sum, ReduceOp::kSum, {out.data(), shard, accumulate}, kCount);
          for (std::size_t i = 0; i < kCount; ++i) {
            const double want = testing::ValueOf(0, i) + testing::ValueOf(1, i) +
                                (accumulate ? testing::ValueOf(2, i) : 0);
            ASSERT_EQ(testing::Load(shard, out.data(), i), want) << i;
          }
        }
      }
    }
  }
}

TEST(Reduce, IntegersAreReducedInTheirOwnType) {
  EXPECT_TRUE(CheckReduceTypes(ElementType::kInt64, ElementType::kInt64, ElementType::kInt64).ok());
  EXPECT_EQ(
      CheckReduceTypes(ElementType::kUint8, ElementType::kFloat32, ElementType::kFloat32).code(),
      StatusCode::kInvalidArgument);
  std::int64_t large = std::numeric_limits<std::int64_t>::max();
  const std::array<Operand, 2> operands = {Operand{&large, ElementType::kInt64},
                                           Operand{&large, ElementType::kInt64}};
  std::int64_t sum = 0;
  Reduce(operands, ElementType::kInt64, ReduceOp::kSum, {&sum, ElementType::kInt64}, 1);
  EXPECT_EQ(sum, -2);
}

}  // namespace
}  // namespace muster
