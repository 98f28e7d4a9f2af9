#include "trainer/model/block_ops.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace muster {
namespace {

using torch::autograd::grad;

double Difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor want = b.to(at::kDouble);
  return ((a.to(at::kDouble) - want).norm() / want.norm()).item<double>();
}

at::Tensor Leaf(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape, at::kFloat).to(type).requires_grad_(true);
}

// fp32 against plain tensor operations; bf16 against the same in fp32, within its rounding.
class BlockOps : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(5); }
  at::ScalarType type() const { return GetParam(); }
  double tolerance() const { return type() == at::kFloat ? 1e-6 : 8e-3; }

  // Both functions map `inputs` to one tensor; values and gradients are compared.
  template <typename F, typename G>
  void Compare(const std::vector<at::Tensor>& inputs, F fused, G plain) const {
    std::vector<at::Tensor> wide;
    for (const at::Tensor& input : inputs) {
      wide.push_back(input.detach().to(at::kDouble).requires_grad_(true));
    }
    const at::Tensor got = fused(inputs);
    const at::Tensor want = plain(wide);
    EXPECT_LE(Difference(got, want), tolerance());
    const at::Tensor seed = at::randn(got.sizes()).to(type());
    const auto got_gradients = grad({got}, inputs, {seed});
    const auto want_gradients = grad({want}, wide, {seed.to(at::kDouble)});
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_LE(Difference(got_gradients[i], want_gradients[i]), tolerance()) << "input " << i;
    }
  }
};

TEST_P(BlockOps, RmsNormMatchesItsDefinition) {
  Compare(
      {Leaf({3, 5, 37}, type()), Leaf({37}, type())},
      [](const auto& in) { return RmsNorm(in[0], in[1], 1e-5); },
      [](const auto& in) { return in[0] / (in[0].square().mean(-1, true) + 1e-5).sqrt() * in[1]; });
}

TEST_P(BlockOps, GatedSiluMatchesItsDefinition) {
  Compare(
      {Leaf({4, 2 * 43}, type())}, [](const auto& in) { return GatedSilu(in[0] * 4); },
      [](const auto& in) {
        const at::Tensor gate = in[0].narrow(1, 0, 43) * 4, up = in[0].narrow(1, 43, 43) * 4;
        return gate * at::sigmoid(gate) * up;
      });
}

TEST_P(BlockOps, SplitAndRotateMatchesItsDefinition) {
  const at::Tensor angles = at::rand({6, 5}) * 7;
  const at::Tensor cos = angles.cos(), sin = angles.sin();
  const auto flatten = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return at::cat({q.flatten(2), k.flatten(2), v.flatten(2)}, -1);
  };
  Compare(
      {Leaf({2, 6, 80}, type())},
      [&](const auto& in) {
        const auto parts =
            SplitAndRotate(in[0], cos, sin, {.heads = 4, .kv_heads = 2, .head_dim = 10});
        return flatten(parts.query, parts.key, parts.value);
      },
      [&](const auto& in) {
        const at::Tensor heads = in[0].view({2, 6, 8, 10});
        const at::Tensor a = heads.narrow(3, 0, 5), b = heads.narrow(3, 5, 5);
        const at::Tensor c = cos.unsqueeze(1), s = sin.unsqueeze(1);
        const at::Tensor turned = at::cat({a * c - b * s, b * c + a * s}, -1);
        return flatten(turned.narrow(2, 0, 4), turned.narrow(2, 4, 2), heads.narrow(2, 6, 2));
      });
}

INSTANTIATE_TEST_SUITE_P(Types, BlockOps, testing::Values(at::kFloat, at::kBFloat16));

TEST(GatedSilu, StaysFiniteForLargeInputs) {
  const at::Tensor out = GatedSilu(at::tensor({-200.0f, 200.0f, 1.0f, 1.0f}).view({1, 4}));
  EXPECT_NEAR(out[0][0].item<double>(), 0.0, 1e-30);
  EXPECT_NEAR(out[0][1].item<double>(), 200.0, 1e-4);
}

}  // namespace
}  // namespace muster
