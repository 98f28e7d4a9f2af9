// Dropout of adapters: layers against autograd over the same mask, blocks against the slope of
// their own output.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "trainer/model/activation_bytes.h"
#include "trainer/model/adapters.h"
#include "trainer/model/linear.h"
#include "trainer/model/llama.h"
#include "trainer/model/llama_block.h"
#include "trainer/model/testing/model_testing.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/dropout.h"
#include "trainer/ops/testing/forwarding_ops.h"

namespace muster {
namespace {

constexpr double kP = 0.3;

// 40 rows, 5 in, 9 out; adapters of rank 2 on rows 0 to 3 and 5 to 8.
class LoraDropout : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(17); }

  at::Tensor Random(at::IntArrayRef shape) const {
    return at::randn(shape, at::kDouble).to(GetParam());
  }
  // [40, 5], 0 or 1 / (1 - p).
  at::Tensor Factors() const {
    at::Tensor factors = at::empty({40, 5}, at::kDouble);
    ops_->Run(op::Dropout{at::ones({40, 5}, at::kDouble), *pass_.mask, kP, factors});
    return factors;
  }
  // x W^T and on its parts the scaled products of the adapters, in fp64.
  at::Tensor Output(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& a,
                    const at::Tensor& b) const {
    const at::Tensor hidden = at::matmul(x * Factors(), a.t());
    const auto part = [&](std::int64_t column, std::int64_t row) {
      return form_.scale * at::matmul(hidden.narrow(1, column, 2), b.narrow(0, row, 4).t());
    };
    return at::matmul(x, weight.t()) +
           at::cat({part(0, 0), at::zeros({40, 1}, at::kDouble), part(2, 4)}, 1);
  }
  void ExpectClose(const at::Tensor& got, const at::Tensor& want) const {
    EXPECT_LE(RelativeDifference(got, want.detach()), 2 * Tolerance(GetParam()));
  }

  const std::unique_ptr<DeviceOps> ops_ = MakeCpuOps();
  const LoraForm form_{.rank = 2, .scale = 1.5, .dropout = kP, .segments = {{0, 4}, {5, 4}}};
  const LoraPass pass_{.form = form_, .mask = PartOfKey({42}, 3)};
};

TEST_P(LoraDropout, LayersMatchAutogradOverTheSameMask) {
  const at::Tensor x = Random({40, 5}), y_gradient = Random({40, 9});
  LinearWeights weights;
  weights.weight = Random({9, 5});
  weights.lora_a = Random({4, 5});
  weights.lora_b = Random({8, 2});
  LinearGradients gradients;
  gradients.lora_a = {at::empty_like(weights.lora_a), false};
  gradients.lora_b = {at::empty_like(weights.lora_b), false};
  at::Tensor hidden = Random({40, 4}), y = at::empty_like(y_gradient);
  at::Tensor x_gradient = at::empty_like(x);
  LinearOps layers(*ops_);
  layers.Forward(x, weights, pass_, hidden, y);
  layers.InputGradient(y_gradient, weights, pass_, x_gradient);
  layers.ParameterGradients(y_gradient, x, hidden, pass_, gradients);

  const auto leaf = [](const at::Tensor& t) { return t.to(at::kDouble).requires_grad_(true); };
  const at::Tensor wide_x = leaf(x), a = leaf(weights.lora_a), b = leaf(weights.lora_b);
  const at::Tensor want = Output(wide_x, weights.weight.to(at::kDouble), a, b);
  const auto slopes = torch::autograd::grad({want}, {wide_x, a, b}, {y_gradient.to(at::kDouble)});
  ExpectClose(y, want);
  ExpectClose(x_gradient, slopes[0]);
  ExpectClose(gradients.lora_a.tensor, slopes[1]);
  ExpectClose(gradients.lora_b.tensor, slopes[2]);
  EXPECT_GT(layers.bytes(), 0);
}

TEST_P(LoraDropout, WithoutAMaskNothingIsDropped) {
  const at::Tensor x = Random({40, 5});
  LinearWeights weights;
  weights.weight = Random({9, 5});
  weights.lora_a = Random({4, 5});
  weights.lora_b = Random({8, 2});
  LoraForm plain = form_;
  plain.dropout = 0;
  const auto output = [&](const LoraPass& pass) {
    at::Tensor hidden = Random({40, 4}), y = Random({40, 9});
    LinearOps(*ops_).Forward(x, weights, pass, hidden, y);
    return y;
  };
  const at::Tensor want = output({.form = plain});
  EXPECT_TRUE(at::equal(output({.form = form_}), want));
  EXPECT_TRUE(at::equal(output({.form = plain, .mask = pass_.mask}), want));
  EXPECT_FALSE(at::equal(output(pass_), want));
}

INSTANTIATE_TEST_SUITE_P(Types, LoraDropout,
                         testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf));

// Two blocks in fp64 with adapters on every matrix, and a scalar of what leaves them.
class LoraDropoutBlocks : public testing::Test {
 protected:
  LoraDropoutBlocks() {
    at::manual_seed(19);
    LoraSpec spec;
    spec.r = 3;
    spec.dropout = kP;
    lora_ = LoraOf(config_, spec);
    for (int b = 0; b < 2; ++b) {
      weights_.push_back(RandomBlock(config_, at::kDouble));
      AddRandomLora(lora_, &weights_.back());
    }
    input_ = at::randn({shape_.tokens(), config_.hidden_size}, at::kDouble);
    slope_ = at::randn_like(input_);
  }

  // The sum of slope_ times the output of all blocks.
  double Scalar(LlamaBlocks& blocks, const at::Tensor& input) {
    blocks.Begin(shape_, {rotary_.OfBatch(shape_, {})}, key_);
    ResidualStream stream{.sum = input.clone()};
    for (int b = 0; b < 2; ++b) stream = blocks.Forward(b, stream, weights_[b]);
    return ((stream.sum + stream.delta) * slope_).sum().item<double>();
  }

  // Every A and B that a block has.
  std::vector<TensorRole> AdapterRoles() {
    std::vector<TensorRole> roles;
    for (const TensorRole role : kBlockRoles) {
      if (role >= TensorRole::kQkvLoraA && weights_[0].Of(role).defined()) roles.push_back(role);
    }
    return roles;
  }

  struct Slopes {
    at::Tensor input;
    std::vector<at::Tensor> adapters;  // of block 0, then of block 1
  };
  Slopes Backward(LlamaBlocks& blocks) {
    Scalar(blocks, input_);
    Slopes slopes{.input = slope_.clone()};
    std::vector<BlockGradients> gradients(2);
    for (int b = 0; b < 2; ++b) {
      for (const TensorRole role : AdapterRoles()) {
        slopes.adapters.push_back(at::empty_like(weights_[b].Of(role)));
        gradients[b].Of(role) = {slopes.adapters.back(), false};
      }
    }
    for (int b = 1; b >= 0; --b) blocks.Backward(b, weights_[b], gradients[b], slopes.input);
    return slopes;
  }

  LlamaBlocks Make(ActivationCheckpointing level) const {
    return {config_, *ops_, at::kDouble, level, lora_};
  }

  const std::unique_ptr<DeviceOps> ops_ = MakeCpuOps();
  const ModelConfig config_ = OddConfig(2);
  const BatchShape shape_{.rows = 3, .length = 7};
  BlockLora lora_;
  std::vector<BlockWeights> weights_;
  at::Tensor input_, slope_;
  RotaryTable rotary_{config_, {.stored = at::kDouble}};
  std::optional<DropoutKey> key_ = PartOfKey({42}, 5);
};

TEST_F(LoraDropoutBlocks, GradientsAreTheSlopesOfTheOutput) {
  constexpr double kStep = 1e-5;
  LlamaBlocks blocks = Make(ActivationCheckpointing::kSelective);
  const Slopes slopes = Backward(blocks);
  const auto expect_slope = [&](at::Tensor moved, const at::Tensor& gradient, const char* what) {
    const at::Tensor direction = at::randn_like(moved);
    const at::Tensor before = moved.clone();
    moved.add_(direction, kStep);
    const double above = Scalar(blocks, input_);
    moved.copy_(before).sub_(direction, kStep);
    const double below = Scalar(blocks, input_);
    moved.copy_(before);
    const double want = (gradient * direction).sum().item<double>();
    EXPECT_NEAR((above - below) / (2 * kStep), want, 1e-6 * (1 + std::abs(want))) << what;
  };
  expect_slope(input_, slopes.input, "input");
  std::size_t next = 0;
  for (int b = 0; b < 2; ++b) {
    for (const TensorRole role : AdapterRoles()) {
      expect_slope(weights_[b].Of(role), slopes.adapters[next++], "adapter");
    }
  }
}

TEST_F(LoraDropoutBlocks, LevelsGiveTheSameBits) {
  LlamaBlocks none = Make(ActivationCheckpointing::kNone);
  const Slopes want = Backward(none);
  for (const ActivationCheckpointing level :
       {ActivationCheckpointing::kSelective, ActivationCheckpointing::kFull,
        ActivationCheckpointing::kFullOffload}) {
    LlamaBlocks blocks = Make(level);
    const Slopes got = Backward(blocks);
    EXPECT_TRUE(at::equal(got.input, want.input));
    for (std::size_t i = 0; i < want.adapters.size(); ++i) {
      EXPECT_TRUE(at::equal(got.adapters[i], want.adapters[i])) << "adapter " << i;
    }
  }
}

// The figures of a plan.
TEST_F(LoraDropoutBlocks, MemoryForWhatIsDroppedIsMeasured) {
  const auto bytes = [this](const BlockLora& lora) {
    LlamaBlocks blocks(config_, *ops_, at::kDouble, ActivationCheckpointing::kNone, lora);
    Backward(blocks);
    return blocks.bytes();
  };
  const auto measured = [this](const BlockLora& lora) {
    return MeasureActivations(config_, {.rows = shape_.rows,
                                        .length = shape_.length,
                                        .compute = ElementType::kFloat64,
                                        .level = ActivationCheckpointing::kNone,
                                        .lora = lora})
        .blocks;
  };
  BlockLora plain = lora_;
  for (LoraForm* form : {&plain.qkv, &plain.output, &plain.gate_up, &plain.down}) form->dropout = 0;
  EXPECT_GT(measured(lora_), measured(plain));
  EXPECT_EQ(bytes(lora_), measured(lora_));
  EXPECT_EQ(bytes(plain), measured(plain));
}

TEST_F(LoraDropoutBlocks, AKeyOfItsOwnForEveryBlockAndMatrix) {
  class Keys final : public ForwardingOps {
   public:
    using ForwardingOps::ForwardingOps;
    void RunKernel(const AnyOperator& op) override {
      if (const auto* dropout = op.As<op::Dropout>()) seen.push_back(dropout->key.bits);
      ForwardingOps::RunKernel(op);
    }
    std::vector<std::uint64_t> seen;
  } keys(*ops_);
  LlamaBlocks blocks(config_, keys, at::kDouble, ActivationCheckpointing::kNone, lora_);
  Scalar(blocks, input_);
  std::vector<std::uint64_t> first = keys.seen;
  EXPECT_EQ(first.size(), 2u * 4u);
  key_ = PartOfKey({42}, 6);
  keys.seen.clear();
  Scalar(blocks, input_);
  first.insert(first.end(), keys.seen.begin(), keys.seen.end());
  EXPECT_EQ(std::set<std::uint64_t>(first.begin(), first.end()).size(), 16u);
  key_.reset();
  keys.seen.clear();
  Scalar(blocks, input_);
  EXPECT_TRUE(keys.seen.empty()) << "evaluation drops nothing";
}

}  // namespace
}  // namespace muster
