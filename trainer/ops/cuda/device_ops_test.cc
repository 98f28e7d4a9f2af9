// Every fused operation, in every type, on every device, against plain tensor operations in fp64
// over the same values: on the CPU, with the GPU's kernels emulated on the CPU, and on a GPU where
// there is one.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "trainer/ops/adamw.h"
#include "trainer/ops/attention.h"
#include "trainer/ops/clamped_swiglu.h"
#include "trainer/ops/convert.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/nf4.h"
#include "trainer/ops/cross_entropy.h"
#include "trainer/ops/cuda/cuda_kernels.h"
#include "trainer/ops/dropout.h"
#include "trainer/ops/embedding.h"
#include "trainer/ops/geglu.h"
#include "trainer/ops/norm.h"
#include "trainer/ops/qk_norm.h"
#include "trainer/ops/rope.h"
#include "trainer/ops/scalar_type.h"
#include "trainer/ops/sum_of_squares.h"
#include "trainer/ops/sum_rows.h"
#include "trainer/ops/swiglu.h"
#include "trainer/ops/testing/forwarding_ops.h"
#include "trainer/ops/weighted_swiglu.h"
#include "trainer/plugin/plugin_loader.h"

namespace muster {
namespace {

using torch::autograd::grad;

// The kernels of a GPU over memory of the host.
class EmulatedOps final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  void RunKernel(const AnyOperator& op) override {
    kernels_.Run(op, device(), /*stream=*/nullptr, /*attention=*/nullptr);
  }

 private:
  CudaKernels kernels_;
};

enum class Where { kCpu, kEmulated, kGpu };

// LibTorch decides once in a process whether it has CUDA, when it is asked first; a seed does that.
class PluginIsOpenBeforeLibTorchIsAsked : public testing::Environment {
 public:
  static const Result<const CudaPlugin*>& Plugin() {
    static const Result<const CudaPlugin*> plugin = OpenCudaPlugin(MUSTER_TEST_CUDA_PLUGIN);
    return plugin;
  }
  void SetUp() override { (void)Plugin(); }
};
[[maybe_unused]] testing::Environment* const environment =
    testing::AddGlobalTestEnvironment(new PluginIsOpenBeforeLibTorchIsAsked);

double Tolerance(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return 1e-13;
    case at::kFloat: return 2e-6;
    case at::kHalf: return 2e-3;
    default: return 1.2e-2;
  }
}

at::Tensor WideLeaf(const at::Tensor& x) {
  return x.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true).requires_grad_();
}

class DeviceOpsOracle : public testing::TestWithParam<Where> {
 protected:
  void SetUp() override {
    at::manual_seed(7);
    at::set_num_threads(1);
    switch (GetParam()) {
      case Where::kCpu: ops_ = MakeCpuOps(); return;
      case Where::kEmulated: ops_ = std::make_unique<EmulatedOps>(*cpu_); return;
      case Where::kGpu: break;
    }
    const Result<const CudaPlugin*>& plugin = PluginIsOpenBeforeLibTorchIsAsked::Plugin();
    if (!plugin.ok()) GTEST_SKIP() << "no GPU: " << plugin.status().message();
    const Result<int> gpus = (*plugin)->device_count();
    if (!gpus.ok()) GTEST_SKIP() << gpus.status().message();
    Result<std::unique_ptr<DeviceOps>> made = (*plugin)->make_ops(0);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    ops_ = *std::move(made);
  }

  template <typename Body>
  void InEveryType(const Body& body) {
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(at::toString(type));
      type_ = type;
      body();
    }
  }
  at::ScalarType type() const { return type_; }
  at::ScalarType wide() const { return WideType(type()); }
  // Tensors of the device; CPU numbers, so that all devices get the same.
  at::Tensor On(const at::Tensor& cpu) const { return cpu.to(ops_->device()); }
  at::Tensor Random(at::IntArrayRef shape) const { return On(at::randn(shape).to(type())); }
  at::Tensor Blank(at::IntArrayRef shape, at::ScalarType of) const {
    return On(at::full(shape, std::numeric_limits<double>::quiet_NaN(), of));
  }
  at::Tensor Blank(at::IntArrayRef shape) const { return Blank(shape, type()); }
  static at::Tensor Exact(const at::Tensor& x) { return x.cpu().to(at::kDouble); }

  void ExpectClose(const at::Tensor& got, const at::Tensor& want, const std::string& what,
                   double looser = 1) const {
    const at::Tensor exact = want.detach().to(at::kDouble);
    const double distance = (Exact(got) - exact).norm().item<double>();
    const double size = exact.norm().item<double>();
    EXPECT_LE(distance, looser * Tolerance(type()) * size) << what;
  }
  static void ExpectSame(const at::Tensor& a, const at::Tensor& b) {
    EXPECT_TRUE(at::equal(a.cpu(), b.cpu()));
  }

  const std::unique_ptr<DeviceOps> cpu_ = MakeCpuOps();
  std::unique_ptr<DeviceOps> ops_;

 private:
  at::ScalarType type_ = at::kFloat;
};

// Packs and their absence; more columns than a block has threads.
constexpr std::int64_t kWidths[] = {3, 64, 65, 1408, 4096};

TEST_P(DeviceOpsOracle, NormWithResidual) {
  InEveryType([&] {
    for (const std::int64_t width : kWidths) {
      const at::Tensor x = Random({5, width}), delta = Random({5, width}), weight = Random({width});
      at::Tensor sum = Blank({5, width}), y = Blank({5, width}), scale = Blank({5}, wide());
      ops_->Run(op::AddNorm{x, delta, weight, 1e-5, sum, y, scale});
      ExpectSame(sum, x.cpu() + delta.cpu());
      const at::Tensor exact = Exact(sum);
      const at::Tensor want = (exact.square().mean(1) + 1e-5).rsqrt();
      ExpectClose(scale, want, "scale");
      ExpectClose(y, exact * want.unsqueeze(1) * Exact(weight), "y " + std::to_string(width));
      at::Tensor again = Blank({5, width});
      ops_->Run(op::RecomputeRmsNorm{sum, weight, scale, again});
      ExpectSame(again, y);
      // In place, and without anything to add.
      at::Tensor in_place = x.clone(), y2 = Blank({5, width}), scale2 = Blank({5}, wide());
      ops_->Run(op::AddNorm{in_place, delta, weight, 1e-5, in_place, y2, scale2});
      ExpectSame(y2, y);
      ops_->Run(op::AddNorm{sum, {}, weight, 1e-5, in_place, y2, scale2});
      ExpectSame(in_place, sum);
      ExpectSame(y2, y);
    }
  });
}

TEST_P(DeviceOpsOracle, NormsOfZeroCenteredWeights) {
  InEveryType([&] {
    for (const std::int64_t width : {65, 64}) {
      const at::Tensor x = Random({7, width}), weight = Random({width});
      const at::Tensor y_gradient = Random({7, width});
      at::Tensor sum = Blank({7, width}), y = Blank({7, width}), again = Blank({7, width});
      at::Tensor scale = Blank({7}, wide()), gradient = On(at::zeros({7, width}).to(type()));
      const at::Tensor written = Blank({width});
      ops_->Run(op::AddNorm{x, {}, weight, 1e-5, sum, y, scale, true});
      ops_->Run(op::RecomputeRmsNorm{sum, weight, scale, again, true});
      ops_->Run(op::NormBackward{y_gradient, sum, weight, scale, gradient, {written, false}, true});
      ExpectSame(again, y);
      const at::Tensor leaf = WideLeaf(x.cpu()), w = WideLeaf(weight.cpu());
      const at::Tensor want = leaf * (leaf.square().mean(1, true) + 1e-5).rsqrt() * (1 + w);
      const auto gradients = grad({want}, {leaf, w}, {Exact(y_gradient)});
      ExpectClose(y, want, "y");
      ExpectClose(gradient, gradients[0], "gradient");
      ExpectClose(written, gradients[1], "weight");
    }
  });
}

TEST_P(DeviceOpsOracle, NormBackward) {
  InEveryType([&] {
    for (const auto& [count, width] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{7, 65}, {300, 64}, {2, 16384}}) {
      const at::Tensor sum = Random({count, width}), weight = Random({width});
      const at::Tensor y_gradient = Random({count, width}), before = Random({count, width});
      at::Tensor y = Blank({count, width}), copy = Blank({count, width});
      at::Tensor scale = Blank({count}, wide());
      ops_->Run(op::AddNorm{sum, {}, weight, 1e-5, copy, y, scale});
      at::Tensor gradient = before.clone(), unused = before.clone();
      const at::Tensor weight_before = On(at::randn({width}, wide()));
      const at::Tensor added = weight_before.clone(), written = Blank({width});
      ops_->Run(op::NormBackward{y_gradient, sum, weight, scale, gradient, {added, true}});
      ops_->Run(op::NormBackward{y_gradient, sum, weight, scale, unused, {written, false}});

      const at::Tensor x = WideLeaf(sum.cpu()), w = WideLeaf(weight.cpu());
      const at::Tensor normed = x * (x.square().mean(1, true) + 1e-5).rsqrt() * w;
      const auto want = grad({normed}, {x, w}, {Exact(y_gradient)});
      const std::string what = std::to_string(count) + " x " + std::to_string(width);
      ExpectClose(gradient, Exact(before) + want[0], what);
      ExpectClose(added, Exact(weight_before) + want[1], what);
      ExpectClose(written, want[1], what);
    }
  });
}

TEST_P(DeviceOpsOracle, NormBackwardOfAFrozenWeight) {
  InEveryType([&] {
    const at::Tensor sum = Random({40, 65}), weight = Random({65}), y_gradient = Random({40, 65});
    const at::Tensor scale = On(at::rand({40}).add(0.5).to(wide())), before = Random({40, 65});
    at::Tensor trained = before.clone(), frozen = before.clone();
    ops_->Run(op::NormBackward{y_gradient, sum, weight, scale, trained, {Blank({65}), false}});
    ops_->Run(op::NormBackward{y_gradient, sum, weight, scale, frozen, {}});
    ExpectSame(frozen, trained);
  });
}

// The heads of queries and keys over their root mean squares, times weights; values as they are.
at::Tensor HeadsNormed(const at::Tensor& qkv, const at::Tensor& query_weight,
                       const at::Tensor& key_weight, const AttentionHeads& h) {
  const at::Tensor heads = qkv.view({qkv.size(0), h.heads + 2 * h.kv_heads, h.head_dim});
  const at::Tensor x = heads.narrow(1, 0, h.heads + h.kv_heads);
  const at::Tensor normed = x * (x.square().mean(2, true) + 1e-6).rsqrt();
  return at::cat({normed.narrow(1, 0, h.heads) * query_weight,
                  normed.narrow(1, h.heads, h.kv_heads) * key_weight,
                  heads.narrow(1, h.heads + h.kv_heads, h.kv_heads)},
                 1)
      .reshape(qkv.sizes());
}

at::Tensor AllHeadsNormed(const at::Tensor& qkv, const at::Tensor& query_weight,
                          const at::Tensor& key_weight) {
  const std::int64_t query = query_weight.size(0), key = key_weight.size(0);
  const auto normed = [](const at::Tensor& x) {
    return x * (x.square().mean(1, true) + 1e-6).rsqrt();
  };
  return at::cat({normed(qkv.narrow(1, 0, query)) * query_weight,
                  normed(qkv.narrow(1, query, key)) * key_weight, qkv.narrow(1, query + key, key)},
                 1);
}

TEST_P(DeviceOpsOracle, QkNormOfAllHeadsAndItsGradient) {
  InEveryType([&] {
    for (const std::int64_t count : {1, 7, 300}) {
      const AttentionHeads heads{.heads = 6, .kv_heads = 2, .head_dim = 10};
      const at::Tensor qkv = Random({count, heads.joined_width()});
      const at::Tensor q = Random({60}), k = Random({20});
      at::Tensor out = Blank(qkv.sizes()), scale = Blank({count, 2}, wide());
      ops_->Run(op::QkNorm{qkv, q, k, 1e-6, heads, out, scale});
      const at::Tensor out_gradient = Random(qkv.sizes());
      const at::Tensor before = On(at::randn({20}, wide()));
      at::Tensor gradient = out_gradient.clone();
      const at::Tensor written = Blank({60}), added = before.clone();
      ops_->Run(
          op::QkNormBackward{qkv, q, k, scale, heads, gradient, {written, false}, {added, true}});

      const std::string what = std::to_string(count) + " rows";
      const at::Tensor x = WideLeaf(qkv.cpu()), a = WideLeaf(q.cpu()), b = WideLeaf(k.cpu());
      const at::Tensor want = AllHeadsNormed(x, a, b);
      const auto gradients = grad({want}, {x, a, b}, {Exact(out_gradient)});
      ExpectClose(out, want, "normed " + what);
      ExpectClose(gradient, gradients[0], "gradient " + what, 2);
      ExpectClose(written, gradients[1], "query weight " + what);
      ExpectClose(added, Exact(before) + gradients[2], "key weight " + what);
    }
  });
}

TEST_P(DeviceOpsOracle, QkNormAndItsGradient) {
  InEveryType([&] {
    for (const auto& [count, head_dim] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 2}, {7, 6}, {300, 64}, {5, 136}}) {
      const AttentionHeads heads{.heads = 3, .kv_heads = 1, .head_dim = head_dim};
      const at::Tensor qkv = Random({count, heads.joined_width()});
      const at::Tensor q = Random({head_dim}), k = Random({head_dim});
      at::Tensor out = Blank(qkv.sizes()), scale = Blank({count, 4}, wide());
      ops_->Run(op::QkNorm{qkv, q, k, 1e-6, heads, out, scale});
      const at::Tensor out_gradient = Random(qkv.sizes());
      const at::Tensor before = On(at::randn({head_dim}, wide()));
      at::Tensor gradient = out_gradient.clone(), frozen = out_gradient.clone();
      const at::Tensor added = before.clone(), written = Blank({head_dim});
      ops_->Run(
          op::QkNormBackward{qkv, q, k, scale, heads, gradient, {added, true}, {written, false}});
      ops_->Run(op::QkNormBackward{qkv, q, k, scale, heads, frozen, {}, {}});

      const std::string what = std::to_string(count) + " x " + std::to_string(head_dim);
      const at::Tensor x = WideLeaf(qkv.cpu()), a = WideLeaf(q.cpu()), b = WideLeaf(k.cpu());
      const at::Tensor want = HeadsNormed(x, a, b, heads);
      const auto gradients = grad({want}, {x, a, b}, {Exact(out_gradient)});
      ExpectClose(out, want, "normed " + what);
      const at::Tensor squares = Exact(qkv).view({count, 5, head_dim}).narrow(1, 0, 4).square();
      ExpectClose(scale, (squares.mean(2) + 1e-6).rsqrt(), "scale " + what);
      ExpectClose(gradient, gradients[0], "gradient " + what, 2);
      ExpectClose(added, Exact(before) + gradients[1], "query weight " + what);
      ExpectClose(written, gradients[2], "key weight " + what);
      ExpectSame(frozen, gradient);
    }
  });
}

TEST_P(DeviceOpsOracle, QkNormOfZeroCenteredWeights) {
  InEveryType([&] {
    const AttentionHeads heads{.heads = 3, .kv_heads = 1, .head_dim = 6};
    const at::Tensor qkv = Random({7, heads.joined_width()}), out_gradient = Random(qkv.sizes());
    const at::Tensor q = Random({6}), k = Random({6});
    at::Tensor out = Blank(qkv.sizes()), scale = Blank({7, 4}, wide());
    ops_->Run(op::QkNorm{qkv, q, k, 1e-6, heads, out, scale, true});
    at::Tensor gradient = out_gradient.clone();
    const at::Tensor of_query = Blank({6}), of_key = Blank({6});
    ops_->Run(op::QkNormBackward{
        qkv, q, k, scale, heads, gradient, {of_query, false}, {of_key, false}, true});
    const at::Tensor x = WideLeaf(qkv.cpu()), a = WideLeaf(q.cpu()), b = WideLeaf(k.cpu());
    const at::Tensor want = HeadsNormed(x, 1 + a, 1 + b, heads);
    const auto gradients = grad({want}, {x, a, b}, {Exact(out_gradient)});
    ExpectClose(out, want, "normed");
    ExpectClose(gradient, gradients[0], "gradient", 2);
    ExpectClose(of_query, gradients[1], "query weight");
    ExpectClose(of_key, gradients[2], "key weight");
  });
}

at::Tensor Turned(const at::Tensor& heads, const at::Tensor& cos, const at::Tensor& sin) {
  const std::int64_t half = heads.size(-1) / 2;
  const at::Tensor a = heads.slice(-1, 0, half), b = heads.slice(-1, half);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, -1);
}

TEST_P(DeviceOpsOracle, RotaryEmbedding) {
  InEveryType([&] {
    for (const std::int64_t head_dim : {6, 32}) {
      const AttentionHeads heads{.heads = 3, .kv_heads = 1, .head_dim = head_dim};
      const BatchShape shape{.rows = 2, .length = 5};
      const at::Tensor before = Random({10, heads.joined_width()});
      const at::Tensor angles = at::randn({5, head_dim / 2}, at::kDouble);
      const at::Tensor cos = On(angles.cos().to(wide())), sin = On(angles.sin().to(wide()));
      at::Tensor turned = before.clone();
      ops_->Run(op::ApplyRope{turned, cos, sin, shape, heads, 1});
      const at::Tensor in = Exact(before).view({2, 5, 5, head_dim});
      const at::Tensor c = Exact(cos).view({1, 5, 1, -1}), s = Exact(sin).view({1, 5, 1, -1});
      const at::Tensor want = at::cat({Turned(in.narrow(2, 0, 4), c, s), in.narrow(2, 4, 1)}, 2);
      ExpectClose(turned, want.reshape({10, -1}), "turned");
      ops_->Run(op::ApplyRope{turned, cos, sin, shape, heads, -1});
      ExpectClose(turned, Exact(before), "turned back", 2);
    }
  });
}

TEST_P(DeviceOpsOracle, RotaryEmbeddingOfTheFirstElementsOfAHead) {
  InEveryType([&] {
    for (const std::int64_t half : {3, 8}) {
      const AttentionHeads heads{.heads = 3, .kv_heads = 1, .head_dim = 32};
      const BatchShape shape{.rows = 2, .length = 5};
      const at::Tensor before = Random({10, heads.joined_width()});
      const at::Tensor angles = at::randn({5, half}, at::kDouble);
      const at::Tensor cos = On(angles.cos().to(wide())), sin = On(angles.sin().to(wide()));
      at::Tensor turned = before.clone();
      ops_->Run(op::ApplyRope{turned, cos, sin, shape, heads, 1});
      const at::Tensor in = Exact(before).view({2, 5, 5, 32}).clone();
      const at::Tensor c = Exact(cos).view({1, 5, 1, -1}), s = Exact(sin).view({1, 5, 1, -1});
      at::Tensor pairs = in.narrow(2, 0, 4).narrow(3, 0, 2 * half);
      pairs.copy_(Turned(pairs, c, s));
      ExpectClose(turned, in.reshape({10, -1}), "turned");
      ops_->Run(op::ApplyRope{turned, cos, sin, shape, heads, -1});
      ExpectClose(turned, Exact(before), "turned back", 2);
    }
  });
}

// Documents of every kind in rows of 40 tokens: a whole row, of one token, and others.
const BatchShape kPacked{
    .rows = 3, .length = 40, .document_begins = {0, 40, 41, 42, 70, 80, 113, 119}};

TEST_P(DeviceOpsOracle, RotaryEmbeddingBeginsAnewWithEachDocument) {
  InEveryType([&] {
    const AttentionHeads heads{.heads = 3, .kv_heads = 1, .head_dim = 32};
    const at::Tensor angles = at::randn({40, 16}, at::kDouble);
    const at::Tensor cos = On(angles.cos().to(wide())), sin = On(angles.sin().to(wide()));
    const at::Tensor before = Random({120, heads.joined_width()});
    at::Tensor turned = before.clone();
    ops_->Run(op::ApplyRope{turned, cos, sin, kPacked, heads, 1});
    at::Tensor alone = before.clone();
    for (std::size_t i = 0; i < kPacked.document_begins.size(); ++i) {
      const std::int64_t begin = kPacked.document_begins[i];
      const std::int64_t end =
          i + 1 < kPacked.document_begins.size() ? kPacked.document_begins[i + 1] : 120;
      at::Tensor document = alone.slice(0, begin, end);
      ops_->Run(op::ApplyRope{document,
                              cos.slice(0, 0, end - begin),
                              sin.slice(0, 0, end - begin),
                              {.rows = 1, .length = end - begin},
                              heads,
                              1});
    }
    ExpectSame(turned, alone);
    ops_->Run(op::ApplyRope{turned, cos, sin, kPacked, heads, -1});
    ExpectClose(turned, Exact(before), "turned back", 2);
  });
}

TEST_P(DeviceOpsOracle, GatedActivation) {
  InEveryType([&] {
    for (const std::int64_t width : {5, 64, 1024}) {
      const at::Tensor gate_up = Random({6, 2 * width}), out_gradient = Random({6, width});
      at::Tensor out = Blank({6, width}), again = Blank({6, width}), gradient = gate_up.clone();
      ops_->Run(op::SwiGlu{gate_up, out});
      ops_->Run(op::SwiGluBackward{gradient, out_gradient, again});
      ExpectSame(again, out);
      const at::Tensor leaf = WideLeaf(gate_up.cpu());
      const at::Tensor want = at::silu(leaf.narrow(1, 0, width)) * leaf.narrow(1, width, width);
      ExpectClose(out, want, "forward");
      ExpectClose(gradient, grad({want}, {leaf}, {Exact(out_gradient)})[0], "backward");
    }
  });
}

TEST_P(DeviceOpsOracle, GatedActivationWithGelu) {
  InEveryType([&] {
    for (const std::int64_t width : {5, 64, 1024}) {
      const at::Tensor gate_up = Random({6, 2 * width}), out_gradient = Random({6, width});
      at::Tensor out = Blank({6, width}), again = Blank({6, width}), gradient = gate_up.clone();
      ops_->Run(op::GeGlu{gate_up, out});
      ops_->Run(op::GeGluBackward{gradient, out_gradient, again});
      ExpectSame(again, out);
      const at::Tensor leaf = WideLeaf(gate_up.cpu());
      const at::Tensor want =
          at::gelu(leaf.narrow(1, 0, width), "tanh") * leaf.narrow(1, width, width);
      ExpectClose(out, want, "forward");
      ExpectClose(gradient, grad({want}, {leaf}, {Exact(out_gradient)})[0], "backward");
    }
  });
}

// The mask is compared with its definition, bit for bit: it is the same on every device.
TEST_P(DeviceOpsOracle, WeightedActivationOfExperts) {
  InEveryType([&] {
    for (const std::int64_t width : {5, 64, 1000}) {
      const at::Tensor gate_up = Random({6, 2 * width}), out_gradient = Random({6, width});
      const at::Tensor weights = On(at::rand({6}).to(wide()));
      at::Tensor out = Blank({6, width}), again = Blank({6, width}), gradient = gate_up.clone();
      at::Tensor weight_gradients = Blank({6}, wide());
      ops_->Run(op::WeightedSwiGlu{gate_up, weights, out});
      ops_->Run(
          op::WeightedSwiGluBackward{gradient, weights, out_gradient, again, weight_gradients});
      ExpectSame(again, out);
      const at::Tensor leaf = WideLeaf(gate_up.cpu()), weight = WideLeaf(weights.cpu());
      const at::Tensor want =
          weight.unsqueeze(1) * at::silu(leaf.narrow(1, 0, width)) * leaf.narrow(1, width, width);
      ExpectClose(out, want, "forward");
      const auto wanted = grad({want}, {leaf, weight}, {Exact(out_gradient)});
      ExpectClose(gradient, wanted[0], "backward");
      ExpectClose(weight_gradients, wanted[1], "of the weights");
    }
  });
}

TEST_P(DeviceOpsOracle, BoundedActivationOfExperts) {
  InEveryType([&] {
    const ClampedSwiGluForm form{.limit = 0.9, .alpha = 1.7};
    for (const std::int64_t width : {5, 64, 1000}) {
      const at::Tensor gate_up = Random({6, 2 * width}), out_gradient = Random({6, width});
      const at::Tensor weights = On(at::rand({6}).to(wide()));
      at::Tensor out = Blank({6, width}), again = Blank({6, width}), gradient = gate_up.clone();
      at::Tensor weight_gradients = Blank({6}, wide());
      ops_->Run(op::ClampedSwiGlu{gate_up, weights, form, out});
      ops_->Run(op::ClampedSwiGluBackward{gradient, weights, out_gradient, form, again,
                                          weight_gradients});
      ExpectSame(again, out);
      const at::Tensor leaf = WideLeaf(gate_up.cpu()), weight = WideLeaf(weights.cpu());
      const std::vector<at::Tensor> turns = leaf.view({6, width, 2}).unbind(-1);
      const at::Tensor gate = turns[0].clamp_max(form.limit);
      const at::Tensor up = turns[1].clamp(-form.limit, form.limit);
      const at::Tensor want =
          weight.unsqueeze(1) * (up + 1) * gate * at::sigmoid(form.alpha * gate);
      ExpectClose(out, want, "forward");
      const auto wanted = grad({want}, {leaf, weight}, {Exact(out_gradient)});
      ExpectClose(gradient, wanted[0], "backward");
      ExpectClose(weight_gradients, wanted[1], "of the weights");
    }
  });
}

TEST_P(DeviceOpsOracle, RowsAddedUpByTheirPlaces) {
  InEveryType([&] {
    const at::Tensor places = at::tensor({4, 0, 2, 2, 1, 5}, at::kLong).view({2, 3});
    for (const std::int64_t width : {5, 200}) {
      const at::Tensor from = Random({6, width});
      at::Tensor out = Blank({2, width});
      ops_->Run(op::SumRows{from, On(places), out});
      const at::Tensor want =
          Exact(from).index_select(0, places.view({-1})).view({2, 3, width}).sum(1);
      ExpectClose(out, want, "the sums");
    }
  });
}

TEST_P(DeviceOpsOracle, DropoutByTheMaskOfItsKey) {
  InEveryType([&] {
    const DropoutKey key = PartOfKey({42}, 7);
    for (const std::int64_t width : kWidths) {
      const at::Tensor x = Random({5, width});
      at::Tensor counts = at::empty({5, width}, at::kBool);
      for (std::int64_t row = 0; row < 5; ++row) {
        for (std::int64_t column = 0; column < width; ++column) {
          counts.data_ptr<bool>()[row * width + column] =
              DropoutNumber(PartOfKey(key, row), column) >= DropoutThreshold(0.25);
        }
      }
      const at::Tensor scaled = x.cpu().to(wide()) * (1 / 0.75);
      const at::Tensor want = at::where(counts, scaled, at::zeros_like(scaled)).to(type());
      at::Tensor out = Blank({5, width}), in_place = x.clone();
      ops_->Run(op::Dropout{x, key, 0.25, out});
      ops_->Run(op::Dropout{in_place, key, 0.25, in_place});
      ExpectSame(out, want);
      ExpectSame(in_place, want);
    }
  });
}

TEST_P(DeviceOpsOracle, CausalAttention) {
  InEveryType([&] {
    const AttentionHeads heads{.heads = 4, .kv_heads = 2, .head_dim = 64};
    const BatchShape shape{.rows = 2, .length = 33};
    const std::int64_t tokens = shape.tokens(), width = heads.heads * heads.head_dim;
    const at::Tensor qkv = Random({tokens, heads.joined_width()});
    const at::Tensor out_gradient = Random({tokens, width});
    at::Tensor out = Blank({tokens, width}), gradient = Blank({tokens, heads.joined_width()});
    at::Tensor lse = Blank({shape.rows, heads.heads, shape.length}, wide());
    ops_->Run(op::Attention{qkv, shape, heads, out, lse});
    ops_->Run(op::AttentionBackward{qkv, out, lse, out_gradient, shape, heads, gradient});

    const at::Tensor leaf = WideLeaf(qkv.cpu());
    const at::Tensor joined = leaf.view({shape.rows, shape.length, 8, 64}).transpose(1, 2);
    const at::Tensor query = joined.narrow(1, 0, 4);
    const at::Tensor key = joined.narrow(1, 4, 2).repeat_interleave(2, 1);
    const at::Tensor value = joined.narrow(1, 6, 2).repeat_interleave(2, 1);
    const at::Tensor future = at::ones({shape.length, shape.length}, at::kBool).triu(1);
    const at::Tensor scores = (at::matmul(query, key.transpose(2, 3)) / 8)
                                  .masked_fill(future, -std::numeric_limits<double>::infinity());
    const at::Tensor want = at::matmul(scores.softmax(-1), value).transpose(1, 2);
    ExpectClose(lse, scores.logsumexp({-1}), "logarithms");
    ExpectClose(out, want.reshape({tokens, width}), "output");
    ExpectClose(gradient, grad({want.reshape({tokens, width})}, {leaf}, {Exact(out_gradient)})[0],
                "gradient", 2);
  });
}

// Which keys each token sees, of documents and within the window.
at::Tensor Unseen(const BatchShape& shape, std::int64_t window) {
  const at::Tensor places = at::arange(shape.tokens());
  const at::Tensor begins = at::tensor(shape.document_begins);
  const at::Tensor document = at::searchsorted(begins, places, false, /*right=*/true);
  const at::Tensor distance = places.unsqueeze(1) - places;
  at::Tensor seen = document.unsqueeze(1).eq(document).logical_and_(distance.ge(0));
  if (window > 0) seen.logical_and_(distance.lt(window));
  return seen.logical_not();
}

TEST_P(DeviceOpsOracle, AttentionOverDocumentsAndWindows) {
  InEveryType([&] {
    for (const std::int64_t window : {0, 1, 9, 33}) {
      const AttentionHeads heads{.heads = 4, .kv_heads = 2, .head_dim = 64, .window = window};
      const at::Tensor qkv = Random({120, heads.joined_width()});
      const at::Tensor out_gradient = Random({120, 256});
      at::Tensor out = Blank({120, 256}), gradient = Blank({120, heads.joined_width()});
      at::Tensor lse = Blank({3, 4, 40}, wide());
      ops_->Run(op::Attention{qkv, kPacked, heads, out, lse});
      ops_->Run(op::AttentionBackward{qkv, out, lse, out_gradient, kPacked, heads, gradient});

      const at::Tensor leaf = WideLeaf(qkv.cpu());
      const at::Tensor joined = leaf.view({120, 8, 64}).transpose(0, 1);
      const at::Tensor key = joined.narrow(0, 4, 2).repeat_interleave(2, 0);
      const at::Tensor value = joined.narrow(0, 6, 2).repeat_interleave(2, 0);
      const at::Tensor scores =
          (at::matmul(joined.narrow(0, 0, 4), key.transpose(1, 2)) / 8)
              .masked_fill(Unseen(kPacked, window), -std::numeric_limits<double>::infinity());
      const at::Tensor want =
          at::matmul(scores.softmax(-1), value).transpose(0, 1).reshape({120, 256});
      const std::string what = "window " + std::to_string(window);
      ExpectClose(out, want, "output, " + what);
      ExpectClose(gradient, grad({want}, {leaf}, {Exact(out_gradient)})[0], "gradient, " + what, 2);
    }
  });
}

TEST_P(DeviceOpsOracle, AttentionUnderACapAndWithAScale) {
  InEveryType([&] {
    for (const std::int64_t window : {0, 1, 9}) {
      const AttentionHeads heads{
          .heads = 4, .kv_heads = 2, .head_dim = 64, .window = window, .scale = 0.2, .cap = 1.5};
      const at::Tensor qkv = Random({120, heads.joined_width()});
      const at::Tensor out_gradient = Random({120, 256});
      at::Tensor out = Blank({120, 256}), gradient = Blank({120, heads.joined_width()});
      at::Tensor lse = Blank({3, 4, 40}, wide());
      ops_->Run(op::Attention{qkv, kPacked, heads, out, lse});
      ops_->Run(op::AttentionBackward{qkv, out, lse, out_gradient, kPacked, heads, gradient});

      const at::Tensor leaf = WideLeaf(qkv.cpu());
      const at::Tensor joined = leaf.view({120, 8, 64}).transpose(0, 1);
      const at::Tensor key = joined.narrow(0, 4, 2).repeat_interleave(2, 0);
      const at::Tensor value = joined.narrow(0, 6, 2).repeat_interleave(2, 0);
      const at::Tensor scores =
          (1.5 * (at::matmul(joined.narrow(0, 0, 4), key.transpose(1, 2)) * (0.2 / 1.5)).tanh())
              .masked_fill(Unseen(kPacked, window), -std::numeric_limits<double>::infinity());
      const at::Tensor want =
          at::matmul(scores.softmax(-1), value).transpose(0, 1).reshape({120, 256});
      const std::string what = "window " + std::to_string(window);
      ExpectClose(out, want, "output, " + what);
      ExpectClose(gradient, grad({want}, {leaf}, {Exact(out_gradient)})[0], "gradient, " + what, 2);
    }
  });
}

TEST_P(DeviceOpsOracle, AttentionWithSinks) {
  InEveryType([&] {
    for (const std::int64_t window : {0, 1, 9}) {
      const AttentionHeads heads{.heads = 4, .kv_heads = 2, .head_dim = 64, .window = window};
      const at::Tensor qkv = Random({120, heads.joined_width()}), sinks = Random({4});
      const at::Tensor out_gradient = Random({120, 256});
      at::Tensor out = Blank({120, 256}), gradient = Blank({120, heads.joined_width()});
      at::Tensor lse = Blank({3, 4, 40}, wide()), sink_gradients = On(at::ones({4}, wide()));
      ops_->Run(op::Attention{qkv, kPacked, heads, out, lse, sinks});
      ops_->Run(op::AttentionBackward{
          qkv, out, lse, out_gradient, kPacked, heads, gradient, sinks, {sink_gradients, true}});

      const at::Tensor leaf = WideLeaf(qkv.cpu()), sink = WideLeaf(sinks.cpu());
      const at::Tensor joined = leaf.view({120, 8, 64}).transpose(0, 1);
      const at::Tensor key = joined.narrow(0, 4, 2).repeat_interleave(2, 0);
      const at::Tensor value = joined.narrow(0, 6, 2).repeat_interleave(2, 0);
      const at::Tensor scores =
          (at::matmul(joined.narrow(0, 0, 4), key.transpose(1, 2)) / 8)
              .masked_fill(Unseen(kPacked, window), -std::numeric_limits<double>::infinity());
      const at::Tensor all = at::cat({scores, sink.view({4, 1, 1}).expand({4, 120, 1})}, -1);
      const at::Tensor want =
          at::matmul(all.softmax(-1).narrow(-1, 0, 120), value).transpose(0, 1).reshape({120, 256});
      const std::string what = "window " + std::to_string(window);
      const auto wanted = grad({want}, {leaf, sink}, {Exact(out_gradient)});
      ExpectClose(out, want, "output, " + what);
      ExpectClose(gradient, wanted[0], "gradient, " + what, 2);
      ExpectClose(sink_gradients, wanted[1] + 1, "gradient of the sinks, " + what, 2);
    }
  });
}

TEST_P(DeviceOpsOracle, CrossEntropyUnderACap) {
  InEveryType([&] {
    for (const std::int64_t words : {7, 8192}) {
      const at::Tensor logits = On((at::randn({5, words}) * 3).to(type()));
      const at::Tensor labels = at::randint(0, words, {5}, at::kLong);
      at::Tensor gradient = logits.clone(), loss = On(at::zeros({1}, at::kDouble));
      ops_->Run(op::CrossEntropy{gradient, On(labels), 0.25, loss, 2.5});
      const at::Tensor leaf = WideLeaf(logits.cpu());
      const at::Tensor want = at::cross_entropy_loss(2.5 * (leaf / 2.5).tanh(), labels, {},
                                                     at::Reduction::Sum, /*ignore_index=*/-100);
      const double sum = want.item<double>();
      EXPECT_NEAR(loss.cpu().item<double>(), sum, (type() == at::kDouble ? 1e-12 : 2e-5) * sum);
      ExpectClose(gradient, grad({want * 0.25}, {leaf})[0], std::to_string(words));
    }
  });
}

TEST_P(DeviceOpsOracle, CrossEntropyInPlace) {
  InEveryType([&] {
    for (const std::int64_t words : {7, 1000, 8192}) {
      const at::Tensor logits = On((at::randn({5, words}) * 3).to(type()));
      const at::Tensor labels = at::randint(0, words, {5}, at::kLong);
      labels[2] = -100;
      at::Tensor gradient = logits.clone(), loss = On(at::full({1}, 10, at::kDouble));
      ops_->Run(op::CrossEntropy{gradient, On(labels), 0.25, loss});
      const at::Tensor leaf = WideLeaf(logits.cpu());
      const at::Tensor want =
          at::cross_entropy_loss(leaf, labels, {}, at::Reduction::Sum, /*ignore_index=*/-100);
      const double sum = want.item<double>();
      EXPECT_NEAR(loss.cpu().item<double>() - 10, sum,
                  (type() == at::kDouble ? 1e-12 : 2e-5) * sum);
      ExpectClose(gradient, grad({want * 0.25}, {leaf})[0], std::to_string(words));
      EXPECT_EQ(gradient.cpu()[2].abs().max().item<double>(), 0) << "a row that counts nothing";
    }
  });
}

TEST_P(DeviceOpsOracle, CrossEntropyOfInfiniteLogits) {
  InEveryType([&] {
    const double infinity = std::numeric_limits<double>::infinity();
    at::Tensor logits = at::full({1, 600}, -infinity, at::kDouble);
    logits[0][5] = 1;
    logits[0][590] = 1;
    at::Tensor gradient = On(logits.to(type())), loss = On(at::zeros({1}, at::kDouble));
    ops_->Run(op::CrossEntropy{gradient, On(at::full({1}, 590, at::kLong)), 1, loss});
    EXPECT_NEAR(loss.cpu().item<double>(), std::log(2.0), 1e-6);
    EXPECT_EQ(gradient.cpu()[0][5].item<double>(), 0.5);
    EXPECT_EQ(gradient.cpu()[0][590].item<double>(), -0.5);
    EXPECT_EQ(gradient.cpu()[0][0].item<double>(), 0);
  });
}

// A tensor as values that are quantised anew on the host, and its arrays on the device.
TEST_P(DeviceOpsOracle, ValuesOfNf4HaveTheBitsOfTheirDefinition) {
  const at::Tensor book = On(at::tensor(at::ArrayRef<float>(Nf4NestedCode().data(), 256)));
  const at::Tensor levels = at::tensor(at::ArrayRef<float>(kNf4Levels, 16));
  InEveryType([&] {
    for (const std::int64_t count : {1, 63, 64, 65, 1000, 64 * 300 + 8}) {
      const at::Tensor codes = at::randint(0, 256, {Nf4Bytes(count)}, at::kByte);
      const at::Tensor absmax = at::rand({Nf4Blocks(count)});
      const at::Tensor absmax_codes = at::randint(0, 256, {Nf4Blocks(count)}, at::kByte);
      const at::Tensor nested = at::rand({Nf4NestedBlocks(count)});
      const at::Tensor scales = (book.cpu().index({absmax_codes.to(at::kLong)}) *
                                 nested.repeat_interleave(256).slice(0, 0, Nf4Blocks(count)))
                                    .add(0.75f);
      const at::Tensor c = On(codes), a = On(absmax), ac = On(absmax_codes), n = On(nested);
      const Nf4Source plain{.count = count,
                            .codes = c.const_data_ptr<std::uint8_t>(),
                            .absmax = a.const_data_ptr<float>()};
      const Nf4Source twice{.count = count,
                            .codes = c.const_data_ptr<std::uint8_t>(),
                            .absmax_codes = ac.const_data_ptr<std::uint8_t>(),
                            .nested_absmax = n.const_data_ptr<float>(),
                            .nested_code = book.const_data_ptr<float>(),
                            .offset = 0.75f};
      const at::Tensor pairs = at::stack({codes.bitwise_right_shift(4), codes.bitwise_and(15)}, 1);
      const at::Tensor level = levels.index({pairs.view({-1}).to(at::kLong)}).slice(0, 0, count);
      for (const auto& [source, scale] : {std::pair{plain, absmax}, {twice, scales}}) {
        at::Tensor out = Blank({count});
        ops_->Run(op::DequantizeNf4{source, out});
        const at::Tensor each = scale.repeat_interleave(64).slice(0, 0, count);
        ExpectSame(out, (level * each).to(type()));
      }
      at::Tensor other = Blank({count + 1});
      EXPECT_THROW(ops_->Run(op::DequantizeNf4{plain, other}), c10::Error);
    }
  });
}

TEST_P(DeviceOpsOracle, EmbeddingBackward) {
  InEveryType([&] {
    const at::Tensor ids = at::tensor({3, 1, 3, 19, 0, 3, 1, 19}, at::kLong);
    for (const std::int64_t width : {5, 200}) {
      const at::Tensor gradient = Random({8, width});
      const at::Tensor want =
          at::zeros({20, width}, at::kDouble).index_add(0, ids, Exact(gradient));
      const at::Tensor written = Blank({20, width}, wide());
      ops_->Run(op::EmbeddingBackward{gradient, On(ids), {written, false}});
      ExpectClose(written, want, "written");
      const at::Tensor before = Random({20, width}), added = before.clone();
      ops_->Run(op::EmbeddingBackward{gradient, On(ids), {added, true}});
      ExpectClose(added, Exact(before) + want, "added");
    }
  });
}

TEST_P(DeviceOpsOracle, AdamWWithShadowAndClipFactor) {
  InEveryType([&] {
    for (const std::int64_t count : {std::int64_t{3000}, std::int64_t{2051}}) {
      const at::ScalarType state = type() == at::kHalf ? at::kFloat : wide();
      const at::Tensor w0 = On(at::randn({count}, state)), g = Random({count});
      const at::Tensor m0 = On(at::randn({count}).to(type()));
      const at::Tensor v0 = On(at::rand({count}).add(0.1).to(type()));
      const at::Tensor w = w0.clone(), m = m0.clone(), v = v0.clone(),
                       low_precision = Blank({count});
      const AdamWOptions options{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
      ops_->Run(op::AdamW{{.weight = w.data_ptr(),
                           .exp_avg = m.data_ptr(),
                           .exp_avg_sq = v.data_ptr(),
                           .gradient = g.data_ptr(),
                           .low_precision = low_precision.data_ptr(),
                           .weight_type = ElementTypeOf(state),
                           .moment_type = ElementTypeOf(type()),
                           .gradient_type = ElementTypeOf(type()),
                           .low_precision_type = ElementTypeOf(type()),
                           .count = count},
                          options,
                          {.number = 3, .lr = 0.01, .gradient_scale = 0.5}});
      const at::Tensor gradient = Exact(g) * 0.5;
      const at::Tensor m1 = Exact(m0) * 0.9 + gradient * 0.1;
      const at::Tensor v1 = Exact(v0) * 0.95 + gradient.square() * 0.05;
      const at::Tensor divisor = (v1 / (1 - std::pow(0.95, 3))).sqrt() + 1e-8;
      const at::Tensor w1 =
          Exact(w0) * (1 - 0.01 * 0.1) - 0.01 / (1 - std::pow(0.9, 3)) * m1 / divisor;
      ExpectClose(m, m1, "first moment");
      ExpectClose(v, v1, "second moment");
      ExpectClose(w, w1, "weight");
      ExpectSame(low_precision, w.cpu().to(type()));
    }
  });
}

TEST_P(DeviceOpsOracle, SumOfSquares) {
  InEveryType([&] {
    for (const std::int64_t count : {1, 4096, 70001}) {
      const at::Tensor values = Random({count});
      at::Tensor sum = On(at::full({1}, 2, at::kDouble));
      ops_->Run(op::SumOfSquares{values.data_ptr(), ElementTypeOf(type()), count, sum});
      const double want = 2 + Exact(values).square().sum().item<double>();
      EXPECT_NEAR(sum.cpu().item<double>(), want, 1e-12 * want);
      at::Tensor again = On(at::full({1}, 2, at::kDouble));
      ops_->Run(op::SumOfSquares{values.data_ptr(), ElementTypeOf(type()), count, again});
      ExpectSame(again, sum);
    }
  });
}

TEST_P(DeviceOpsOracle, ConversionToEveryType) {
  InEveryType([&] {
    for (const at::ScalarType to : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      // The second array begins where no pack does.
      for (const std::int64_t first : {0, 1}) {
        const at::Tensor from = Random({1003}), target = On(at::randn({1003}).to(to));
        const at::Tensor before = target.clone();
        const std::int64_t count = 1003 - first;
        const auto convert = [&](bool add) {
          ops_->Run(op::Convert{from[first].data_ptr(), ElementTypeOf(type()),
                                target[first].data_ptr(), ElementTypeOf(to), count, add});
        };
        convert(false);
        ExpectSame(target.slice(0, first), from.cpu().slice(0, first).to(to));
        ExpectSame(target.slice(0, 0, first), before.slice(0, 0, first));
        convert(true);
        const bool in_double = type() == at::kDouble || to == at::kDouble;
        const at::Tensor sum = from.cpu().to(to).to(in_double ? at::kDouble : at::kFloat) +
                               from.cpu().to(in_double ? at::kDouble : at::kFloat);
        ExpectSame(target.slice(0, first), sum.to(to).slice(0, first));
      }
    }
  });
}

TEST_P(DeviceOpsOracle, MemoryAndCopies) {
  InEveryType([&] {
    const at::Tensor memory = ops_->Allocate(10000), host = ops_->AllocateHost(10000);
    EXPECT_EQ(memory.cpu().abs().max().item<int>(), 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data_ptr()) % 16, 0U);
    EXPECT_TRUE(host.is_cpu());
    host.fill_(42);
    ops_->Copy(memory.data_ptr(), host.data_ptr(), 5000)->WaitOnDevice();
    EXPECT_EQ(memory.cpu().sum().item<std::int64_t>(), 42 * 5000);
    host.zero_();
    ops_->Copy(host.data_ptr(), memory.data_ptr(), 5000)->WaitOnHost();
    EXPECT_EQ(host.sum().item<std::int64_t>(), 42 * 5000);
  });
}

TEST_P(DeviceOpsOracle, WrongShapesAreExceptions) {
  InEveryType([&] {
    at::Tensor out = Blank({2, 8}), small = Blank({2, 8});
    EXPECT_THROW(ops_->Run(op::SwiGlu{small, out}), c10::Error);
    at::Tensor odd = Blank({2, 15}), table = Blank({2, 2});
    EXPECT_THROW(ops_->Run(op::ApplyRope{odd,
                                         table,
                                         table,
                                         {.rows = 1, .length = 2},
                                         {.heads = 1, .kv_heads = 1, .head_dim = 5},
                                         1}),
                 c10::Error);
  });
}

std::string NameOf(const testing::TestParamInfo<Where>& info) {
  const char* const places[] = {"Cpu", "Emulated", "Gpu"};
  return places[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Everywhere, DeviceOpsOracle,
                         testing::Values(Where::kCpu, Where::kEmulated, Where::kGpu), NameOf);

}  // namespace
}  // namespace muster
