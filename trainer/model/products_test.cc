#include "trainer/model/products.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>

namespace muster {
namespace {

struct Shape {
  std::int64_t rows, depth, columns;
};

class Products : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    at::manual_seed(7);
    const auto [rows, depth, columns] = GetParam();
    a_ = at::randn({rows, depth}).to(at::kBFloat16);
    b_ = at::randn({columns, depth}).to(at::kBFloat16);
    wanted_ = at::mm(a_.to(at::kDouble), b_.to(at::kDouble).t());
  }

  // Half a unit in the last of bf16's 8 bits, and what fp32 sums of this depth may be apart.
  static void ExpectRounded(const at::Tensor& got, const at::Tensor& wanted) {
    ASSERT_EQ(got.scalar_type(), at::kBFloat16);
    ASSERT_EQ(got.sizes(), wanted.sizes());
    const at::Tensor apart = (got.to(at::kDouble) - wanted).abs() - wanted.abs() / 256;
    EXPECT_LT(apart.max().item<double>(), 1e-3);
  }

  at::Tensor a_, b_, wanted_;
};

TEST_P(Products, AreRoundedOnceAcrossTiles) {
  at::Tensor out = at::full(wanted_.sizes(), 1e9, at::kBFloat16);
  MultiplyInto(out, a_, b_.t());
  ExpectRounded(out, wanted_);
  ExpectRounded(Linear(a_.unsqueeze(0), b_).squeeze(0), wanted_);
}

TEST_P(Products, AddToABaseThatMayBeTheResult) {
  at::Tensor out = at::randn(wanted_.sizes()).to(at::kBFloat16);
  const at::Tensor sum = out.to(at::kDouble) * 0.5 + 2 * wanted_;
  MultiplyAddInto(out, out, a_, b_.t(), 0.5, 2);
  ExpectRounded(out, sum);
}

TEST_P(Products, OfSixteenBitsAddUpInFp32) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor a = a_.to(type).t().contiguous(), b = b_.to(type).t().contiguous();
    const at::Tensor before = at::randn(wanted_.sizes());
    at::Tensor out = before.clone();
    AddWideProduct(out, a, b, 2);
    AddWideProduct(out, a.narrow(1, 0, a.size(1)), b);
    const at::Tensor want =
        before.to(at::kDouble) + 3 * at::mm(a.to(at::kDouble).t(), b.to(at::kDouble));
    EXPECT_LT((out.to(at::kDouble) - want).abs().max().item<double>(),
              1e-6 * want.abs().max().item<double>());
  }
}

TEST_P(Products, AddABiasToEachRow) {
  const at::Tensor bias = at::randn({b_.size(0)}).to(at::kBFloat16);
  ExpectRounded(Linear(a_, b_, bias), wanted_ + bias.to(at::kDouble));
}

TEST_P(Products, ReadNoBaseWhoseFactorIsZero) {
  at::Tensor out = at::full(wanted_.sizes(), NAN, at::kBFloat16);
  MultiplyAddInto(out, out, a_, b_.t(), 0, 1);
  ExpectRounded(out, wanted_);
}

TEST_P(Products, FillAPartOfATensor) {
  at::Tensor whole = at::zeros({wanted_.size(0), wanted_.size(1) + 2}, at::kBFloat16);
  at::Tensor part = whole.narrow(1, 1, wanted_.size(1));
  MultiplyInto(part, a_, b_.t());
  ExpectRounded(part, wanted_);
  EXPECT_EQ(whole.select(1, 0).abs().max().item<float>(), 0);
  EXPECT_EQ(whole.select(1, whole.size(1) - 1).abs().max().item<float>(), 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Products,
                         testing::Values(Shape{1, 1, 1}, Shape{3, 64, 1}, Shape{1, 8, 1100},
                                         Shape{1030, 16, 1025}, Shape{520, 2500, 430}),
                         [](const auto& info) {
                           return std::to_string(info.param.rows) + "x" +
                                  std::to_string(info.param.depth) + "x" +
                                  std::to_string(info.param.columns);
                         });

}  // namespace
}  // namespace muster
