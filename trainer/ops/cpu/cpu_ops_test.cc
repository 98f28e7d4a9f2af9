#include "trainer/ops/cpu/cpu_ops.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "trainer/ops/attention.h"
#include "trainer/ops/cross_entropy.h"
#include "trainer/ops/device_ops.h"
#include "trainer/ops/dropout.h"
#include "trainer/ops/embedding.h"
#include "trainer/ops/geglu.h"
#include "trainer/ops/norm.h"
#include "trainer/ops/qk_norm.h"
#include "trainer/ops/rope.h"
#include "trainer/ops/swiglu.h"

namespace muster {
namespace {

using torch::autograd::grad;

constexpr std::int64_t kWidths[] = {1, 3, 17, 63, 64, 65, 1408};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double Tolerance(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return 1e-13;
    case at::kFloat: return 1e-6;
    case at::kHalf: return 1e-3;
    default: return 8e-3;
  }
}

at::Tensor WideLeaf(const at::Tensor& x) { return x.to(at::kDouble, false, true).requires_grad_(); }

// Every operation in every type against plain tensor operations in fp64 on the same values.
class CpuOps : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(7); }
  void TearDown() override { at::set_num_threads(threads_); }

  at::ScalarType type() const { return GetParam(); }
  at::ScalarType wide() const { return type() == at::kDouble ? at::kDouble : at::kFloat; }
  at::Tensor Random(at::IntArrayRef shape) const { return at::randn(shape).to(type()); }
  at::Tensor Empty(at::IntArrayRef shape) const { return at::full(shape, kNan, type()); }
  at::Tensor EmptyWide(at::IntArrayRef shape) const { return at::full(shape, kNan, wide()); }

  void ExpectClose(const at::Tensor& got, const at::Tensor& want, const std::string& what) const {
    const at::Tensor exact = want.detach().to(at::kDouble);
    const double distance = (got.to(at::kDouble) - exact).norm().item<double>();
    EXPECT_LE(distance, Tolerance(type()) * exact.norm().item<double>()) << what;
  }

  // What `run` returns has the same bits with any number of threads.
  void ExpectSameBitsOnAnyThreads(const std::function<std::vector<at::Tensor>()>& run) {
    at::set_num_threads(1);
    const std::vector<at::Tensor> alone = run();
    for (const int threads : {2, 3, 5}) {
      at::set_num_threads(threads);
      const std::vector<at::Tensor> shared = run();
      for (std::size_t i = 0; i < alone.size(); ++i) {
        EXPECT_TRUE(at::equal(alone[i], shared[i])) << "result " << i << ", " << threads;
      }
    }
  }

  const std::unique_ptr<DeviceOps> ops_ = MakeCpuOps();

 private:
  const int threads_ = at::get_num_threads();
};

struct Normed {
  at::Tensor sum, y, scale;
};

TEST_P(CpuOps, AddNormMatchesItsDefinition) {
  for (const std::int64_t width : kWidths) {
    const at::Tensor x = Random({9, width}), delta = Random({9, width}), weight = Random({width});
    Normed n{Empty({9, width}), Empty({9, width}), EmptyWide({9})};
    ops_->Run(op::AddNorm{x, delta, weight, 1e-5, n.sum, n.y, n.scale});
    EXPECT_TRUE(at::equal(n.sum, x + delta)) << width;
    const at::Tensor sum = n.sum.to(at::kDouble);
    const at::Tensor scale = (sum.square().mean(1) + 1e-5).rsqrt();
    ExpectClose(n.scale, scale, "scale " + std::to_string(width));
    ExpectClose(n.y, sum * scale.unsqueeze(1) * weight.to(at::kDouble), std::to_string(width));
    at::Tensor again = Empty({9, width});
    ops_->Run(op::RecomputeRmsNorm{n.sum, weight, n.scale, again});
    EXPECT_TRUE(at::equal(again, n.y)) << width;
  }
}

// As transformers' LlamaRMSNorm: to the element type before the weight and after it.
TEST_P(CpuOps, AddNormRoundsBeforeTheWeight) {
  const at::Tensor x = Random({50, 64}), weight = Random({64});
  at::Tensor sum = Empty({50, 64}), y = Empty({50, 64}), scale = EmptyWide({50});
  ops_->Run(op::AddNorm{x, {}, weight, 1e-5, sum, y, scale});
  const at::Tensor normed = (x.to(wide()) * scale.unsqueeze(1)).to(type());
  EXPECT_TRUE(at::equal(y, weight * normed));
}

// As transformers' Gemma2RMSNorm: 1 + weight in W, and one rounding behind it.
TEST_P(CpuOps, AddNormOfZeroCenteredWeightsRoundsOnce) {
  const at::Tensor x = Random({50, 65}), weight = Random({65});
  at::Tensor sum = Empty({50, 65}), y = Empty({50, 65}), scale = EmptyWide({50});
  ops_->Run(op::AddNorm{x, {}, weight, 1e-5, sum, y, scale, true});
  const at::Tensor normed = x.to(wide()) * scale.unsqueeze(1);
  EXPECT_TRUE(at::equal(y, (normed * (1 + weight.to(wide()))).to(type())));
  at::Tensor again = Empty({50, 65});
  ops_->Run(op::RecomputeRmsNorm{sum, weight, scale, again, true});
  EXPECT_TRUE(at::equal(again, y));
}

TEST_P(CpuOps, NormBackwardOfZeroCenteredWeightsMatchesAutograd) {
  const at::Tensor sum = Random({37, 65}), weight = Random({65}), y_gradient = Random({37, 65});
  at::Tensor y = Empty({37, 65}), copy = Empty({37, 65}), scale = EmptyWide({37});
  ops_->Run(op::AddNorm{sum, {}, weight, 1e-5, copy, y, scale, true});
  at::Tensor gradient = at::zeros({37, 65}, type()), frozen = gradient.clone();
  const at::Tensor written = EmptyWide({65});
  ops_->Run(op::NormBackward{y_gradient, sum, weight, scale, gradient, {written, false}, true});
  ops_->Run(op::NormBackward{y_gradient, sum, weight, scale, frozen, {}, true});
  EXPECT_TRUE(at::equal(gradient, frozen));
  const at::Tensor x = WideLeaf(sum), w = WideLeaf(weight);
  const at::Tensor normed = x * (x.square().mean(1, true) + 1e-5).rsqrt() * (1 + w);
  const auto want = grad({normed}, {x, w}, {y_gradient.to(at::kDouble)});
  ExpectClose(gradient, want[0], "gradient");
  ExpectClose(written, want[1], "weight");
}

TEST_P(CpuOps, QkNormOfZeroCenteredWeightsMatchesAutograd) {
  const AttentionHeads heads{.heads = 4, .kv_heads = 2, .head_dim = 10};
  const at::Tensor qkv = Random({30, heads.joined_width()}), out_gradient = Random(qkv.sizes());
  const at::Tensor query_weight = Random({10}), key_weight = Random({10});
  at::Tensor out = Empty(qkv.sizes()), scale = EmptyWide({30, 6});
  ops_->Run(op::QkNorm{qkv, query_weight, key_weight, 1e-6, heads, out, scale, true});
  at::Tensor gradient = out_gradient.clone();
  const at::Tensor of_query = EmptyWide({10}), of_key = EmptyWide({10});
  ops_->Run(op::QkNormBackward{
      qkv, query_weight, key_weight, scale, heads, gradient, {of_query}, {of_key}, true});
  const at::Tensor x = WideLeaf(qkv), a = WideLeaf(query_weight), b = WideLeaf(key_weight);
  const at::Tensor each = x.view({30, 8, 10});
  const at::Tensor normed = each * (each.square().mean(2, true) + 1e-6).rsqrt();
  const at::Tensor want = at::cat({normed.narrow(1, 0, 4) * (1 + a),
                                   normed.narrow(1, 4, 2) * (1 + b), each.narrow(1, 6, 2)},
                                  1)
                              .reshape(qkv.sizes());
  const auto gradients = grad({want}, {x, a, b}, {out_gradient.to(at::kDouble)});
  ExpectClose(out, want, "normed");
  ExpectClose(gradient, gradients[0], "gradient");
  ExpectClose(of_query, gradients[1], "query weight");
  ExpectClose(of_key, gradients[2], "key weight");
}

TEST_P(CpuOps, AddNormWorksInPlaceAndWithoutDelta) {
  const at::Tensor x = Random({40, 65}), delta = Random({40, 65}), weight = Random({65});
  Normed apart{Empty({40, 65}), Empty({40, 65}), EmptyWide({40})};
  ops_->Run(op::AddNorm{x, delta, weight, 1e-5, apart.sum, apart.y, apart.scale});
  Normed in_place{x.clone(), Empty({40, 65}), EmptyWide({40})};
  ops_->Run(
      op::AddNorm{in_place.sum, delta, weight, 1e-5, in_place.sum, in_place.y, in_place.scale});
  EXPECT_TRUE(at::equal(in_place.sum, apart.sum));
  EXPECT_TRUE(at::equal(in_place.y, apart.y));
  Normed alone{Empty({40, 65}), Empty({40, 65}), EmptyWide({40})};
  ops_->Run(op::AddNorm{apart.sum, {}, weight, 1e-5, alone.sum, alone.y, alone.scale});
  EXPECT_TRUE(at::equal(alone.sum, apart.sum));
  EXPECT_TRUE(at::equal(alone.y, apart.y));
}

TEST_P(CpuOps, NormBackwardMatchesAutograd) {
  for (const std::int64_t width : kWidths) {
    const std::int64_t count = width == 17 ? 2100 : 37;  // more than one row in each of many blocks
    const at::Tensor sum = Random({count, width}), weight = Random({width});
    const at::Tensor y_gradient = Random({count, width}), before = Random({count, width});
    at::Tensor y = Empty({count, width}), copy = Empty({count, width}), scale = EmptyWide({count});
    ops_->Run(op::AddNorm{sum, {}, weight, 1e-5, copy, y, scale});
    at::Tensor gradient = before.clone();
    const at::Tensor weight_before = at::randn({width}, wide());
    const at::Tensor added = weight_before.clone(), written = Empty({width});
    ops_->Run(op::NormBackward{y_gradient, sum, weight, scale, gradient, {added, true}});
    at::Tensor unused = before.clone();
    ops_->Run(op::NormBackward{y_gradient, sum, weight, scale, unused, {written, false}});

    const at::Tensor x = WideLeaf(sum), w = WideLeaf(weight);
    const at::Tensor normed = x * (x.square().mean(1, true) + 1e-5).rsqrt() * w;
    const auto want = grad({normed}, {x, w}, {y_gradient.to(at::kDouble)});
    const std::string what = "width " + std::to_string(width);
    ExpectClose(gradient, before.to(at::kDouble) + want[0], what);
    ExpectClose(added, weight_before.to(at::kDouble) + want[1], what);
    ExpectClose(written, want[1], what);
  }
}

TEST_P(CpuOps, NormBitsDoNotDependOnThreads) {
  const at::Tensor x = Random({700, 129}), delta = Random({700, 129}), weight = Random({129});
  const at::Tensor y_gradient = Random({700, 129}), before = Random({700, 129});
  ExpectSameBitsOnAnyThreads([&]() -> std::vector<at::Tensor> {
    Normed n{Empty({700, 129}), Empty({700, 129}), EmptyWide({700})};
    ops_->Run(op::AddNorm{x, delta, weight, 1e-5, n.sum, n.y, n.scale});
    at::Tensor gradient = before.clone(), weight_gradient = EmptyWide({129});
    ops_->Run(
        op::NormBackward{y_gradient, n.sum, weight, n.scale, gradient, {weight_gradient, false}});
    return {n.sum, n.y, n.scale, gradient, weight_gradient};
  });
}

// As transformers' Qwen3RMSNorm: to the element type before the weight and after it.
TEST_P(CpuOps, QkNormRoundsBeforeTheWeight) {
  const AttentionHeads heads{.heads = 4, .kv_heads = 2, .head_dim = 32};
  const at::Tensor qkv = Random({30, heads.joined_width()});
  const at::Tensor query_weight = Random({32}), key_weight = Random({32});
  at::Tensor out = Empty(qkv.sizes()), scale = EmptyWide({30, 6});
  ops_->Run(op::QkNorm{qkv, query_weight, key_weight, 1e-6, heads, out, scale});
  const at::Tensor x = qkv.view({30, 8, 32}), y = out.view({30, 8, 32});
  const at::Tensor normed = (x.narrow(1, 0, 6).to(wide()) * scale.unsqueeze(2)).to(type());
  EXPECT_TRUE(at::equal(y.narrow(1, 0, 4), query_weight * normed.narrow(1, 0, 4)));
  EXPECT_TRUE(at::equal(y.narrow(1, 4, 2), key_weight * normed.narrow(1, 4, 2)));
  EXPECT_TRUE(at::equal(y.narrow(1, 6, 2), x.narrow(1, 6, 2)));
}

TEST_P(CpuOps, QkNormBitsDoNotDependOnThreads) {
  const AttentionHeads heads{.heads = 4, .kv_heads = 2, .head_dim = 30};
  const at::Tensor qkv = Random({900, heads.joined_width()}), weight = Random({30});
  const at::Tensor out_gradient = Random(qkv.sizes());
  ExpectSameBitsOnAnyThreads([&]() -> std::vector<at::Tensor> {
    at::Tensor out = Empty(qkv.sizes()), scale = EmptyWide({900, 6});
    ops_->Run(op::QkNorm{qkv, weight, weight, 1e-6, heads, out, scale});
    at::Tensor gradient = out_gradient.clone();
    const at::Tensor query = EmptyWide({30}), key = EmptyWide({30});
    ops_->Run(op::QkNormBackward{qkv, weight, weight, scale, heads, gradient, {query}, {key}});
    return {out, scale, gradient, query, key};
  });
}

// One long document and many short ones, which the threads take in turns.
TEST_P(CpuOps, AttentionOverDocumentsDoesNotDependOnThreads) {
  AttentionHeads heads{.heads = 4, .kv_heads = 2, .head_dim = 16};
  BatchShape shape{.rows = 2, .length = 150};
  for (std::int64_t begin = 0; begin < 150; begin += 7) shape.document_begins.push_back(begin);
  shape.document_begins.push_back(150);
  const at::Tensor qkv = Random({300, heads.joined_width()}), out_gradient = Random({300, 64});
  for (const std::int64_t window : {0, 20}) {
    heads.window = window;
    ExpectSameBitsOnAnyThreads([&]() -> std::vector<at::Tensor> {
      at::Tensor out = Empty({300, 64}), lse = EmptyWide({2, 4, 150});
      ops_->Run(op::Attention{qkv, shape, heads, out, lse});
      at::Tensor gradient = Empty(qkv.sizes());
      ops_->Run(op::AttentionBackward{qkv, out, lse, out_gradient, shape, heads, gradient});
      return {out, lse, gradient};
    });
  }
}

at::Tensor Turned(const at::Tensor& heads, const at::Tensor& cos, const at::Tensor& sin) {
  const std::int64_t half = heads.size(3) / 2;
  const at::Tensor a = heads.narrow(3, 0, half), b = heads.narrow(3, half, half);
  const at::Tensor c = cos.unsqueeze(1), s = sin.unsqueeze(1);
  return at::cat({a * c - b * s, b * c + a * s}, 3);
}

// All of a head, or its first half alone.
TEST_P(CpuOps, RotateTurnsQueryAndKeyAndBack) {
  const auto check = [this](std::int64_t head_dim, std::int64_t half) {
    const AttentionHeads heads{.heads = 4, .kv_heads = 2, .head_dim = head_dim};
    const BatchShape shape{.rows = 3, .length = 5};
    const at::Tensor angles = at::rand({5, half}, wide()) * 7;
    const at::Tensor cos = angles.cos(), sin = angles.sin();
    const at::Tensor before = Random({15, heads.joined_width()});
    at::Tensor qkv = before.clone();
    ops_->Run(op::ApplyRope{qkv, cos, sin, shape, heads, 1});
    const auto split = [&](const at::Tensor& x) { return x.view({3, 5, 8, head_dim}); };
    const auto pairs = [&](const at::Tensor& x) {
      return split(x).narrow(2, 0, 6).narrow(3, 0, 2 * half);
    };
    const at::Tensor want = Turned(pairs(before).to(at::kDouble), cos, sin);
    ExpectClose(pairs(qkv), want, "head_dim " + std::to_string(head_dim));
    EXPECT_TRUE(at::equal(split(qkv).narrow(2, 6, 2), split(before).narrow(2, 6, 2)));
    const std::int64_t rest = head_dim - 2 * half;
    EXPECT_TRUE(
        at::equal(split(qkv).narrow(3, 2 * half, rest), split(before).narrow(3, 2 * half, rest)));
    ops_->Run(op::ApplyRope{qkv, cos, sin, shape, heads, -1});
    ExpectClose(qkv, before, "back, head_dim " + std::to_string(head_dim));
  };
  for (const std::int64_t head_dim : {2, 6, 64, 130}) {
    check(head_dim, head_dim / 2);
    check(head_dim, (head_dim + 2) / 4);
  }
}

TEST_P(CpuOps, AttentionMatchesAtenOnJoinedHeads) {
  const AttentionHeads heads{.heads = 4, .kv_heads = 2, .head_dim = 16};
  const BatchShape shape{.rows = 2, .length = 19};
  const at::Tensor qkv = Random({38, heads.joined_width()});
  const at::Tensor out_gradient = Random({38, 64});
  at::Tensor out = Empty({38, 64}), lse = EmptyWide({2, 4, 19});
  ops_->Run(op::Attention{qkv, shape, heads, out, lse});
  at::Tensor qkv_gradient = Empty({38, heads.joined_width()});
  ops_->Run(op::AttentionBackward{qkv, out, lse, out_gradient, shape, heads, qkv_gradient});

  const at::Tensor leaf = WideLeaf(qkv);
  const at::Tensor parts = leaf.view({2, 19, 8, 16}).transpose(1, 2);
  const at::Tensor key = parts.narrow(1, 4, 2).repeat_interleave(2, 1);
  const at::Tensor value = parts.narrow(1, 6, 2).repeat_interleave(2, 1);
  const at::Tensor mask = at::full({19, 19}, -INFINITY, at::kDouble).triu(1);
  const at::Tensor scores = parts.narrow(1, 0, 4).matmul(key.transpose(2, 3)) / 4.0 + mask;
  const at::Tensor mixed = scores.softmax(3).matmul(value).transpose(1, 2).reshape({38, 64});
  ExpectClose(out, mixed, "out");
  ExpectClose(lse, scores.logsumexp(3), "lse");
  const at::Tensor want = grad({mixed}, {leaf}, {out_gradient.to(at::kDouble)})[0];
  const at::Tensor distance = (qkv_gradient.to(at::kDouble) - want).norm() / want.norm();
  EXPECT_LE(distance.item<double>(), 3 * Tolerance(type()));  // probabilities are rounded as well
}

TEST_P(CpuOps, SwiGluMatchesAutograd) {
  for (const std::int64_t width : kWidths) {
    const at::Tensor gate_up = Random({23, 2 * width}) * 4;
    const at::Tensor out_gradient = Random({23, width});
    at::Tensor out = Empty({23, width}), again = Empty({23, width});
    ops_->Run(op::SwiGlu{gate_up, out});
    at::Tensor gradient = gate_up.clone();
    ops_->Run(op::SwiGluBackward{gradient, out_gradient, again});
    EXPECT_TRUE(at::equal(out, again)) << width;

    const at::Tensor leaf = WideLeaf(gate_up);
    const at::Tensor want = at::silu(leaf.narrow(1, 0, width)) * leaf.narrow(1, width, width);
    const at::Tensor want_gradient = grad({want}, {leaf}, {out_gradient.to(at::kDouble)})[0];
    ExpectClose(out, want, "width " + std::to_string(width));
    ExpectClose(gradient, want_gradient, "gradient, width " + std::to_string(width));
  }
}

TEST_P(CpuOps, GeGluMatchesAutograd) {
  for (const std::int64_t width : kWidths) {
    const at::Tensor gate_up = Random({23, 2 * width}) * 4;
    const at::Tensor out_gradient = Random({23, width});
    at::Tensor out = Empty({23, width}), again = Empty({23, width});
    ops_->Run(op::GeGlu{gate_up, out});
    at::Tensor gradient = gate_up.clone();
    ops_->Run(op::GeGluBackward{gradient, out_gradient, again});
    EXPECT_TRUE(at::equal(out, again)) << width;

    const at::Tensor leaf = WideLeaf(gate_up);
    const at::Tensor want =
        at::gelu(leaf.narrow(1, 0, width), "tanh") * leaf.narrow(1, width, width);
    const at::Tensor want_gradient = grad({want}, {leaf}, {out_gradient.to(at::kDouble)})[0];
    ExpectClose(out, want, "width " + std::to_string(width));
    ExpectClose(gradient, want_gradient, "gradient, width " + std::to_string(width));
  }
}

TEST_P(CpuOps, GeGluKeepsItsLimits) {
  at::Tensor gate_up = at::tensor({-300.0, 300.0, 0.0, kNan, 1.0, 1.0, 1.0, 1.0}).to(type());
  gate_up = gate_up.view({1, 8});
  at::Tensor out = Empty({1, 4}), gradient = gate_up.clone();
  ops_->Run(op::GeGluBackward{gradient, at::ones({1, 4}, type()), out});
  const at::Tensor wide_out = out.to(at::kDouble), wide_gradient = gradient.to(at::kDouble);
  EXPECT_EQ(wide_out[0][0].item<double>(), 0);
  EXPECT_EQ(wide_out[0][1].item<double>(), 300);
  EXPECT_EQ(wide_out[0][2].item<double>(), 0);
  EXPECT_TRUE(std::isnan(wide_out[0][3].item<double>()));
  EXPECT_EQ(wide_gradient[0][0].item<double>(), 0);
  EXPECT_EQ(wide_gradient[0][1].item<double>(), 1);
  EXPECT_EQ(wide_gradient[0][2].item<double>(), 0.5);
}

TEST_P(CpuOps, SwiGluKeepsItsLimits) {
  at::Tensor gate_up = at::tensor({-300.0, 300.0, 0.0, kNan, 1.0, 1.0, 1.0, 1.0}).to(type());
  gate_up = gate_up.view({1, 8});
  at::Tensor out = Empty({1, 4});
  ops_->Run(op::SwiGlu{gate_up, out});
  const at::Tensor wide_out = out.to(at::kDouble);
  EXPECT_NEAR(wide_out[0][0].item<double>(), 0, 1e-30);
  EXPECT_EQ(wide_out[0][1].item<double>(), 300);
  EXPECT_EQ(wide_out[0][2].item<double>(), 0);
  EXPECT_TRUE(std::isnan(wide_out[0][3].item<double>()));
}

struct Loss {
  at::Tensor sum, gradient;
};

Loss DefinedLoss(const at::Tensor& logits, const at::Tensor& labels, double scale, double cap = 0) {
  const at::Tensor leaf = WideLeaf(logits);
  const at::Tensor capped = cap != 0 ? cap * (leaf / cap).tanh() : leaf;
  const at::Tensor picked = capped.log_softmax(1).gather(1, labels.clamp_min(0).unsqueeze(1));
  const at::Tensor sum = -picked.squeeze(1).masked_select(labels.ge(0)).sum();
  return {sum, grad({sum * scale}, {leaf})[0]};
}

TEST_P(CpuOps, CrossEntropyMatchesAutograd) {
  for (const std::int64_t width : {1, 3, 17, 63, 64, 65, 1408, 5003}) {
    // Rising along the row, so that later blocks raise the maximum.
    const at::Tensor slope = at::linspace(0, 12, width).to(type());
    at::Tensor logits = Random({11, width}) * 2 + slope;
    at::Tensor labels = at::randint(width, {11}, at::kLong);
    labels[4] = -100;
    const Loss want = DefinedLoss(logits, labels, 0.25);
    at::Tensor loss = at::full({1}, 2.0, at::kDouble);
    ops_->Run(op::CrossEntropy{logits, labels, 0.25, loss});
    const double expected = 2.0 + want.sum.item<double>();
    EXPECT_NEAR(loss.item<double>(), expected, expected * (type() == at::kDouble ? 1e-14 : 1e-6));
    if (width > 1) ExpectClose(logits, want.gradient, "width " + std::to_string(width));
    EXPECT_EQ(logits[4].abs().max().item<double>(), 0);
  }
}

TEST_P(CpuOps, CrossEntropyUnderACapMatchesAutograd) {
  for (const std::int64_t width : {1, 3, 65, 5003}) {
    for (const double cap : {1.5, 30.0}) {
      const at::Tensor slope = at::linspace(0, 12, width).to(type());
      at::Tensor logits = Random({11, width}) * 2 + slope;
      at::Tensor labels = at::randint(width, {11}, at::kLong);
      labels[4] = -100;
      const Loss want = DefinedLoss(logits, labels, 0.25, cap);
      at::Tensor loss = at::full({1}, 2.0, at::kDouble);
      ops_->Run(op::CrossEntropy{logits, labels, 0.25, loss, cap});
      const double expected = 2.0 + want.sum.item<double>();
      EXPECT_NEAR(loss.item<double>(), expected, expected * (type() == at::kDouble ? 1e-14 : 1e-6));
      if (width > 1) ExpectClose(logits, want.gradient, "width " + std::to_string(width));
      EXPECT_EQ(logits[4].abs().max().item<double>(), 0);
    }
  }
}

TEST_P(CpuOps, CrossEntropyBitsDoNotDependOnThreads) {
  const at::Tensor logits = Random({67, 3001});
  const at::Tensor labels = at::randint(3001, {67}, at::kLong);
  ExpectSameBitsOnAnyThreads([&]() -> std::vector<at::Tensor> {
    at::Tensor gradient = logits.clone(), loss = at::zeros({1}, at::kDouble);
    ops_->Run(op::CrossEntropy{gradient, labels, 1.0, loss});
    return {gradient, loss};
  });
}

TEST_P(CpuOps, CrossEntropyOfIgnoredRowsIsZeroWhateverTheyHold) {
  at::Tensor logits = Empty({6, 70});
  at::Tensor loss = at::zeros({1}, at::kDouble);
  ops_->Run(op::CrossEntropy{logits, at::full({6}, -100, at::kLong), 1.0, loss});
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_TRUE(at::equal(logits, at::zeros({6, 70}, type())));
}

TEST_P(CpuOps, CrossEntropyLetsNanAndInfinityThrough) {
  for (const double bad : {kNan, std::numeric_limits<double>::infinity()}) {
    for (const std::int64_t at : {0, 40, 1300}) {
      at::Tensor logits = Random({2, 1301});
      logits[1][at] = bad;
      at::Tensor loss = at::zeros({1}, at::kDouble);
      ops_->Run(op::CrossEntropy{logits, at::tensor({3, 5}, at::kLong), 1.0, loss});
      EXPECT_TRUE(std::isnan(loss.item<double>())) << bad << " at " << at;
      EXPECT_TRUE(logits[1].isnan().any().item<bool>()) << bad << " at " << at;
      EXPECT_FALSE(logits[0].isnan().any().item<bool>()) << bad << " at " << at;
    }
  }
}

TEST_P(CpuOps, CrossEntropyRefusesAnUnknownWord) {
  at::Tensor logits = Random({2, 10}), loss = at::zeros({1}, at::kDouble);
  EXPECT_THROW(ops_->Run(op::CrossEntropy{logits, at::tensor({3, 10}, at::kLong), 1.0, loss}),
               c10::Error);
}

// Dynamic loss scaling finds a scale that is too large by its infinite gradients.
TEST(CpuOpsOfHalf, CrossEntropyOverflowsToInfinity) {
  at::Tensor logits = at::zeros({1, 4}, at::kHalf), loss = at::zeros({1}, at::kDouble);
  MakeCpuOps()->Run(op::CrossEntropy{logits, at::tensor({2}, at::kLong), 1 << 20, loss});
  EXPECT_TRUE(logits.isinf().all().item<bool>());
  EXPECT_LT(logits[0][2].item<double>(), 0);
}

TEST_P(CpuOps, EmbeddingBackwardAddsUpRepeatedWords) {
  for (const bool add : {false, true}) {
    const at::Tensor gradient = Random({200, 33});
    const at::Tensor ids = at::randint(40, {200}, at::kLong) * 2 + 1;
    const at::Tensor before = at::randn({90, 33}, wide());
    const at::Tensor table = before.clone();
    ops_->Run(op::EmbeddingBackward{gradient, ids, {table, add}});
    at::Tensor want = add ? before.to(at::kDouble) : at::zeros({90, 33}, at::kDouble);
    want.index_add_(0, ids, gradient.to(at::kDouble));
    EXPECT_LE((table.to(at::kDouble) - want).norm().item<double>(),
              (type() == at::kDouble ? 1e-14 : 1e-6) * want.norm().item<double>());
    EXPECT_TRUE(at::equal(table[2], add ? before[2] : at::zeros({33}, wide())));
  }
}

TEST_P(CpuOps, EmbeddingBackwardBitsDoNotDependOnThreads) {
  const at::Tensor gradient = Random({3000, 64});
  const at::Tensor ids = at::randint(2000, {3000}, at::kLong);
  ExpectSameBitsOnAnyThreads([&]() -> std::vector<at::Tensor> {
    const at::Tensor table = Empty({2000, 64});
    ops_->Run(op::EmbeddingBackward{gradient, ids, {table, false}});
    return {table};
  });
}

TEST_P(CpuOps, EmbeddingBackwardOfNoTokensIsZero) {
  const at::Tensor table = Empty({5, 3});
  ops_->Run(op::EmbeddingBackward{Random({0, 3}), at::empty({0}, at::kLong), {table, false}});
  EXPECT_TRUE(at::equal(table, at::zeros({5, 3}, type())));
}

TEST_P(CpuOps, EmbeddingBackwardRefusesAnUnknownWord) {
  const at::Tensor table = Empty({5, 3}), gradient = Random({1, 3});
  for (const std::int64_t word : {-1, 5}) {
    const at::Tensor ids = at::full({1}, word, at::kLong);
    EXPECT_THROW(ops_->Run(op::EmbeddingBackward{gradient, ids, {table, false}}), c10::Error)
        << word;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CpuOps,
                         testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return std::string(at::toString(info.param)); });

}  // namespace
}  // namespace muster
