#include "trainer/model/linear.h"

#include <gtest/gtest.h>

#include "trainer/model/testing/model_testing.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace muster {
namespace {

struct Case {
  at::ScalarType type;
  at::ScalarType target_type;
};

// 70 rows, 5 in, 9 out.
class Linear : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { at::manual_seed(11); }
  at::Tensor Random(at::IntArrayRef shape) const {
    return at::randn(shape, at::kDouble).to(GetParam().type);
  }
  void ExpectClose(const at::Tensor& got, const at::Tensor& want) const {
    EXPECT_LE(RelativeDifference(got, want), Tolerance(GetParam().type));
  }
  const std::unique_ptr<DeviceOps> ops_ = MakeCpuOps();
};

TEST_P(Linear, ProductsMatchTheirDefinitions) {
  const at::Tensor x = Random({70, 5}), weight = Random({9, 5}), y_gradient = Random({70, 9});
  at::Tensor y = at::empty_like(y_gradient), x_gradient = at::empty_like(x);
  LinearForward(x, weight, y);
  LinearInputGradient(y_gradient, weight, x_gradient);
  ExpectClose(y, at::linear(x.to(at::kDouble), weight.to(at::kDouble)));
  ExpectClose(x_gradient, at::matmul(y_gradient.to(at::kDouble), weight.to(at::kDouble)));
}

TEST_P(Linear, WeightGradientIsWrittenOrAdded) {
  const at::Tensor x = Random({70, 5}), y_gradient = Random({70, 9});
  const at::Tensor want = at::matmul(y_gradient.to(at::kDouble).t(), x.to(at::kDouble));
  const at::Tensor before = at::randn({9, 5}, at::kDouble).to(GetParam().target_type);
  GradientTarget target{.tensor = before.clone()};
  LinearWeightGradient gradient(*ops_);
  gradient.Write(y_gradient, x, target);
  ExpectClose(target.tensor, want);
  target = {.tensor = before.clone(), .add = true};
  gradient.Write(y_gradient, x, target);
  ExpectClose(target.tensor, want + before.to(at::kDouble));
}

TEST_P(Linear, WeightGradientTakesNoScratch) {
  LinearWeightGradient gradient(*ops_);
  const GradientTarget target{.tensor = at::empty({9, 5}, GetParam().target_type)};
  gradient.Write(Random({70, 9}), Random({70, 5}), target);
  EXPECT_EQ(gradient.bytes(), 0);
}

INSTANTIATE_TEST_SUITE_P(Types, Linear,
                         testing::Values(Case{at::kDouble, at::kDouble},
                                         Case{at::kFloat, at::kFloat},
                                         Case{at::kBFloat16, at::kBFloat16},
                                         Case{at::kBFloat16, at::kFloat},
                                         Case{at::kHalf, at::kHalf}, Case{at::kHalf, at::kFloat}));

}  // namespace
}  // namespace muster
