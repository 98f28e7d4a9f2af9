#include "trainer/ops/embedding.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/ops/cpu/cpu_ops.h"

namespace muster {
namespace {

// The gradient of a table of twelve words, where the row at each place is ten to its power.
at::Tensor OfPlaces(const at::Tensor& ids) {
  const at::Tensor table = at::full({12, 1}, -1.0f);
  const at::Tensor rows = at::pow(10.0, at::arange(ids.numel())).to(at::kFloat).view({-1, 1});
  MakeCpuOps()->Run(op::EmbeddingBackward{rows, ids, {table, false}});
  return table.view({-1});
}

TEST(EmbeddingBackward, GathersThePlacesOfEachWord) {
  const at::Tensor table = OfPlaces(at::tensor({7, 2, 7, 9, 2, 7}, at::kLong));
  EXPECT_TRUE(at::equal(
      table, at::tensor({0, 0, 10010, 0, 0, 0, 0, 100101, 0, 1000, 0, 0}).to(at::kFloat)));
}

TEST(EmbeddingBackward, OfNothingIsZero) {
  EXPECT_TRUE(at::equal(OfPlaces(at::empty({0}, at::kLong)), at::zeros({12})));
}

// 2^24 + 1 is no single: a sum in another order, or in fp64, would be another number.
TEST(EmbeddingBackward, AddsRowsInOrderInSinglePrecision) {
  const at::Tensor ids = at::zeros({3}, at::kLong);
  const auto sum = [&](const at::Tensor& rows) {
    const at::Tensor table = at::zeros({1, 1});
    MakeCpuOps()->Run(op::EmbeddingBackward{rows.view({3, 1}), ids, {table, false}});
    return table.item<float>();
  };
  EXPECT_EQ(sum(at::tensor({16777216.0f, 1.0f, 1.0f})), 16777216.0f);
  EXPECT_EQ(sum(at::tensor({1.0f, 1.0f, 16777216.0f})), 16777218.0f);
}

}  // namespace
}  // namespace muster
