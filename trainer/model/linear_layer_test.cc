#include "trainer/model/linear_layer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "trainer/model/testing/model_testing.h"
#include "trainer/ops/cpu/row_product.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

class LinearLayerOf : public testing::TestWithParam<at::ScalarType> {};

TEST_P(LinearLayerOf, OnePositionFollowsTheDefinition) {
  const at::NoGradGuard no_grad;
  at::manual_seed(4);
  for (const auto& [in, out] : {std::pair{1, 1}, {31, 7}, {64, 33}, {1000, 3}, {37, 5000}}) {
    const at::Tensor x = at::randn({1, 1, in}).to(GetParam());
    const at::Tensor weight = at::randn({out, in}).to(GetParam());
    const at::Tensor bias = at::randn({out}).to(GetParam());
    const at::Tensor want = at::matmul(x.to(at::kDouble), weight.to(at::kDouble).t());
    const at::Tensor got = LinearLayer(x, weight);
    EXPECT_EQ(got.scalar_type(), GetParam());
    EXPECT_EQ(got.sizes(), at::IntArrayRef({1, 1, out}));
    EXPECT_LE(RelativeDifference(got, want), Tolerance(GetParam())) << in << ", " << out;
    EXPECT_LE(RelativeDifference(LinearLayer(x, weight, bias), want + bias.to(at::kDouble)),
              Tolerance(GetParam()));
  }
}

TEST_P(LinearLayerOf, OnePositionOfAStridedTensorIsReadRight) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({6, 1, 24}).to(GetParam()).transpose(0, 2).select(2, 3);
  const at::Tensor weight = at::randn({5, 24}).to(GetParam());
  EXPECT_LE(RelativeDifference(LinearLayer(x.t(), weight),
                               at::matmul(x.t().to(at::kDouble), weight.to(at::kDouble).t())),
            Tolerance(GetParam()));
}

TEST_P(LinearLayerOf, AnyCutIntoRangesGivesTheSameBits) {
  const at::Tensor x = at::randn({37}).to(GetParam());
  const at::Tensor weight = at::randn({100, 37}).to(GetParam());
  at::Tensor whole = at::empty({100}, x.options()), cut = at::empty({100}, x.options());
  ProductRows rows{.type = ElementTypeOf(GetParam()),
                   .width = 37,
                   .rows = 100,
                   .x = x.const_data_ptr(),
                   .weight = weight.const_data_ptr(),
                   .y = whole.mutable_data_ptr()};
  RowProduct(rows, 0, 100);
  rows.y = cut.mutable_data_ptr();
  for (const auto& [begin, end] : {std::pair{0, 1}, {1, 9}, {9, 30}, {30, 100}})
    RowProduct(rows, begin, end);
  EXPECT_TRUE(at::equal(whole, cut));
}

TEST_P(LinearLayerOf, SeveralPositionsGetTheBitsOfEachAlone) {
  for (const auto& [in, out] : {std::pair{16, 1}, {48, 7}, {512, 33}, {37, 5}}) {
    const at::Tensor weight = at::randn({out, in}).to(GetParam());
    for (const std::int64_t count : {2, 7, 8, 16, 19}) {
      const at::Tensor x = at::randn({count, in}).to(GetParam());
      at::Tensor all = at::empty({count, out}, x.options());
      ProductRows rows{.type = ElementTypeOf(GetParam()),
                       .width = in,
                       .rows = out,
                       .count = count,
                       .x = x.const_data_ptr(),
                       .weight = weight.const_data_ptr(),
                       .y = all.mutable_data_ptr()};
      RowProduct(rows, 0, out / 3);
      RowProduct(rows, out / 3, out);
      rows.count = 1;
      at::Tensor alone = at::empty_like(all);
      for (std::int64_t i = 0; i < count; ++i) {
        rows.x = x[i].const_data_ptr();
        rows.y = alone[i].mutable_data_ptr();
        RowProduct(rows, 0, out);
      }
      EXPECT_TRUE(at::equal(all, alone)) << in << ", " << out << ", " << count;
    }
  }
}

TEST_P(LinearLayerOf, FewPositionsFollowTheDefinition) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({2, 3, 64}).to(GetParam());
  const at::Tensor weight = at::randn({50, 64}).to(GetParam());
  EXPECT_LE(RelativeDifference(LinearLayer(x, weight),
                               at::matmul(x.to(at::kDouble), weight.to(at::kDouble).t())),
            Tolerance(GetParam()));
}

TEST_P(LinearLayerOf, ManyPositionsAreLibTorchs) {
  const at::Tensor x = at::randn({5, 7, 8}).to(GetParam());
  const at::Tensor weight = at::randn({5, 8}).to(GetParam());
  EXPECT_TRUE(at::equal(LinearLayer(x, weight), at::linear(x, weight)));
}

INSTANTIATE_TEST_SUITE_P(Types, LinearLayerOf,
                         testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf));

TEST(LinearLayer, RecordsAGraphWhereOneIsWanted) {
  const at::Tensor x = at::randn({1, 8}).requires_grad_(true);
  EXPECT_TRUE(LinearLayer(x, at::randn({5, 8})).requires_grad());
}

}  // namespace
}  // namespace muster
