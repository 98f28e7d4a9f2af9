#include "trainer/ops/cpu/grouped_factors.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

double Tolerance(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return 1e-13;
    case at::kFloat: return 1e-6;
    case at::kHalf: return 1e-3;
    default: return 8e-3;
  }
}

struct Sizes {
  std::int64_t rank, width;
};

// Each product against plain ones of each group in fp64. Some groups have no rows, and one has more
// than a block of them.
class GroupedFactors : public testing::TestWithParam<std::tuple<at::ScalarType, Sizes>> {
 protected:
  void SetUp() override { at::manual_seed(7); }
  void TearDown() override { at::set_num_threads(threads_); }

  at::ScalarType type() const { return std::get<0>(GetParam()); }
  std::int64_t rank() const { return std::get<1>(GetParam()).rank; }
  std::int64_t width() const { return std::get<1>(GetParam()).width; }
  std::int64_t groups() const { return static_cast<std::int64_t>(begins_.size()) - 1; }
  at::Tensor Random(at::IntArrayRef shape) const { return at::randn(shape).to(type()); }
  at::Tensor RandomRows(std::int64_t columns) const { return Random({begins_.back(), columns}); }
  GroupedRows Rows(double scale) const {
    return {.type = ElementTypeOf(type()),
            .begins = begins_,
            .rank = rank(),
            .width = width(),
            .scale = scale};
  }
  // [groups, rank, width], one row behind the other in memory or one column.
  std::vector<at::Tensor> Factors(at::ScalarType of) const {
    return {at::randn({groups(), rank(), width()}).to(of),
            at::randn({groups(), width(), rank()}).to(of).transpose(1, 2)};
  }
  static FactorLayout LayoutOf(const at::Tensor& factors) {
    return {.group = factors.stride(0), .row = factors.stride(1), .column = factors.stride(2)};
  }
  at::Tensor OfGroup(const at::Tensor& rows, std::int64_t group) const {
    const auto begin = begins_[static_cast<std::size_t>(group)];
    return rows.narrow(0, begin, begins_[static_cast<std::size_t>(group) + 1] - begin)
        .to(at::kDouble);
  }
  // The rows that `product(group)` gives for each group.
  at::Tensor ByGroup(const std::function<at::Tensor(std::int64_t)>& product) const {
    std::vector<at::Tensor> rows;
    for (std::int64_t group = 0; group < groups(); ++group) rows.push_back(product(group));
    return at::cat(rows);
  }
  void ExpectClose(const at::Tensor& got, const at::Tensor& want) const {
    const double apart = (got.to(at::kDouble) - want).norm().item<double>();
    EXPECT_LE(apart, Tolerance(got.scalar_type()) * want.norm().item<double>());
  }
  // What `run` returns is close to `want` and has the same bits with any number of threads.
  void Expect(const at::Tensor& want, const std::function<at::Tensor()>& run) {
    at::set_num_threads(1);
    const at::Tensor alone = run();
    ExpectClose(alone, want);
    for (const int threads : {2, 3}) {
      at::set_num_threads(threads);
      EXPECT_TRUE(at::equal(run(), alone)) << threads;
    }
  }

  // Enough of them for several threads.
  const std::vector<std::int64_t> begins_ = {0, 0, 1, 8, 8, 141, 174, 400, 400};

 private:
  const int threads_ = at::get_num_threads();
};

TEST_P(GroupedFactors, HiddenValuesOfRows) {
  const at::Tensor x = RandomRows(width());
  for (const at::Tensor& factors : Factors(type())) {
    const at::Tensor want = ByGroup([&](std::int64_t group) {
      return 0.5 * at::mm(OfGroup(x, group), factors[group].to(at::kDouble).t());
    });
    Expect(want, [&] {
      at::Tensor hidden = at::full({begins_.back(), rank()}, NAN, type());
      GroupedHidden(Rows(0.5), x.const_data_ptr(), factors.const_data_ptr(), LayoutOf(factors),
                    hidden.mutable_data_ptr());
      return hidden;
    });
  }
}

TEST_P(GroupedFactors, OutputIsAddedToRows) {
  const at::Tensor hidden = RandomRows(rank()), before = RandomRows(width());
  for (const at::Tensor& factors : Factors(type())) {
    const at::Tensor want =
        before.to(at::kDouble) + ByGroup([&](std::int64_t group) {
          return 2 * at::mm(OfGroup(hidden, group), factors[group].to(at::kDouble));
        });
    Expect(want, [&] {
      at::Tensor y = before.clone();
      AddGroupedOutput(Rows(2), hidden.const_data_ptr(), factors.const_data_ptr(),
                       LayoutOf(factors), y.mutable_data_ptr());
      return y;
    });
  }
}

TEST_P(GroupedFactors, GradientsAreWrittenOrAddedInEitherType) {
  const at::Tensor hidden = RandomRows(rank()), x = RandomRows(width());
  std::vector<at::Tensor> products;
  for (std::int64_t group = 0; group < groups(); ++group)
    products.push_back(2 * at::mm(OfGroup(hidden, group).t(), OfGroup(x, group)));
  const at::Tensor want = at::stack(products);
  for (const at::ScalarType of : {type(), WideType(type())}) {
    for (const at::Tensor& before : Factors(of)) {
      for (const bool add : {false, true}) {
        Expect(add ? want + before.to(at::kDouble) : want, [&] {
          at::Tensor gradients = add ? before.clone() : at::full_like(before, NAN);
          GroupedFactorGradients(Rows(2), hidden.const_data_ptr(), x.const_data_ptr(),
                                 {.to = gradients.mutable_data_ptr(),
                                  .layout = LayoutOf(gradients),
                                  .type = ElementTypeOf(of),
                                  .add = add});
          return gradients;
        });
      }
    }
  }
}

std::string NameOf(const testing::TestParamInfo<GroupedFactors::ParamType>& info) {
  const auto& [type, sizes] = info.param;
  return std::string(ElementTypeName(ElementTypeOf(type))) + "_" + std::to_string(sizes.rank) +
         "_" + std::to_string(sizes.width);
}

INSTANTIATE_TEST_SUITE_P(
    TypesAndSizes, GroupedFactors,
    testing::Combine(testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf),
                     testing::Values(Sizes{16, 256}, Sizes{1, 5}, Sizes{8, 48}, Sizes{21, 547})),
    NameOf);

}  // namespace
}  // namespace muster
