#include "trainer/fsdp/precision.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(Precision, ByDefaultStateIsFp32AndWeightsAreBf16) {
  EXPECT_EQ(ResolvePrecision({}, {}), (Precision{.compute = ElementType::kBFloat16,
                                                 .master = ElementType::kFloat32,
                                                 .moments = ElementType::kFloat32,
                                                 .gradient = ElementType::kFloat32,
                                                 .buffer = ElementType::kFloat32}));
}

TEST(Precision, Fp64IsFp64Throughout) {
  const Precision precision = ResolvePrecision({.mixed_precision = MixedPrecision::kFp64}, {});
  EXPECT_EQ(precision.master, ElementType::kFloat64);
  EXPECT_EQ(precision.moments, ElementType::kFloat64);
  EXPECT_EQ(precision.gradient, ElementType::kFloat64);
  EXPECT_EQ(precision.wide(), ElementType::kFloat64);
}

TEST(Precision, EachTypeMayBeChosen) {
  const Precision precision =
      ResolvePrecision({.mixed_precision = MixedPrecision::kFp16,
                        .reduce_dtype = StateType::kFp16,
                        .buffer_dtype = StateType::kBf16},
                       {.master_weights = StateType::kBf16, .moments = StateType::kBf16});
  EXPECT_EQ(precision, (Precision{.compute = ElementType::kFloat16,
                                  .master = ElementType::kBFloat16,
                                  .moments = ElementType::kBFloat16,
                                  .gradient = ElementType::kFloat16,
                                  .buffer = ElementType::kBFloat16}));
  EXPECT_TRUE(precision.scales_loss());
}

}  // namespace
}  // namespace muster
