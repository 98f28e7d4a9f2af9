// The CPU's fused operations on one thread, each beside what LibTorch does for the same, as JSON.
//
//   kernels_bench [REPETITIONS]      default 15
//
// Shapes are those of a step of 1024 tokens of a model of hidden size 512 and 8192 words, and 16 Mi
// weights for the flat operations. Times are the thread's, the best in milliseconds of runs that
// take turns; a copy that restores inputs is not counted.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "trainer/ops/adamw.h"
#include "trainer/ops/convert.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/nf4_tensor.h"
#include "trainer/ops/cross_entropy.h"
#include "trainer/ops/device_ops.h"
#include "trainer/ops/embedding.h"
#include "trainer/ops/norm.h"
#include "trainer/ops/rope.h"
#include "trainer/ops/sum_of_squares.h"
#include "trainer/ops/swiglu.h"

namespace muster {
namespace {

using nlohmann::json;
using torch::autograd::grad;
using Work = std::function<void()>;

constexpr std::int64_t kTokens = 1024;
constexpr std::int64_t kHidden = 512;
constexpr std::int64_t kInner = 1408;
constexpr std::int64_t kWords = 8192;
constexpr std::int64_t kWeights = std::int64_t{16} << 20;

struct Case {
  std::string name;
  Work ours;
  Work libtorch;
  Work restore = [] {};  // before each
};

double ThreadMilliseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double Milliseconds(const Work& work) {
  const double start = ThreadMilliseconds();
  work();
  return ThreadMilliseconds() - start;
}

json Measure(const Case& c, const char* type, int repetitions) {
  double ours = 1e30, libtorch = 1e30;
  for (int i = 0; i < repetitions + 2; ++i) {
    c.restore();
    const double mine = Milliseconds(c.ours);
    c.restore();
    const double theirs = Milliseconds(c.libtorch);
    if (i < 2) continue;  // warm
    ours = std::min(ours, mine);
    libtorch = std::min(libtorch, theirs);
  }
  return {{"operation", c.name},
          {"type", type},
          {"muster_ms", ours},
          {"libtorch_ms", libtorch},
          {"ratio", libtorch / ours}};
}

at::Tensor Random(at::IntArrayRef shape, at::ScalarType type) { return at::randn(shape).to(type); }

// Where the engine keeps its arrays; both sides work on it.
at::Tensor Flat(DeviceOps& ops, at::ScalarType type) {
  return ops.Allocate(static_cast<std::size_t>(kWeights) * at::elementSize(type)).view(type);
}

Case AddNorm(DeviceOps& ops, at::ScalarType type) {
  const at::Tensor x = Random({kTokens, kHidden}, type), delta = Random({kTokens, kHidden}, type);
  const at::Tensor weight = Random({kHidden}, type);
  at::Tensor sum = at::empty_like(x), y = at::empty_like(x), scale = at::empty({kTokens});
  return {"add_norm",
          [=, &ops]() mutable {
            ops.Run(op::AddNorm{x, delta, weight, 1e-5, sum, y, scale});
          },
          [=] { at::rms_norm(x + delta, {kHidden}, weight, 1e-5); }};
}

Case NormBackward(DeviceOps& ops, at::ScalarType type) {
  const at::Tensor x = Random({kTokens, kHidden}, type).requires_grad_();
  const at::Tensor weight = Random({kHidden}, type).requires_grad_();
  const at::Tensor y_gradient = Random({kTokens, kHidden}, type);
  at::Tensor gradient = Random({kTokens, kHidden}, type), y = at::empty_like(gradient);
  at::Tensor sum = at::empty_like(y), scale = at::empty({kTokens});
  const at::Tensor weight_gradient = at::zeros({kHidden});
  ops.Run(op::AddNorm{x, {}, weight, 1e-5, sum, y, scale});
  const at::Tensor normed = at::rms_norm(x, {kHidden}, weight, 1e-5);
  return {"norm_backward",
          [=, &ops]() mutable {
            ops.Run(op::NormBackward{
                y_gradient, sum, weight, scale, gradient, {weight_gradient, false}});
          },
          [=] {
            gradient.add_(grad({normed}, {x, weight}, {y_gradient}, true)[0]);
          }};
}

Case ApplyRope(DeviceOps& ops, at::ScalarType type) {
  const AttentionHeads heads{.heads = 8, .kv_heads = 8, .head_dim = 64};
  const BatchShape shape{.rows = 1, .length = kTokens};
  at::Tensor qkv = Random({kTokens, heads.joined_width()}, type);
  const at::Tensor angles = at::rand({kTokens, 32});
  const at::Tensor cos = angles.cos(), sin = angles.sin();
  // transformers' tables: both halves, in the compute type.
  const at::Tensor wide_cos = at::cat({cos, cos}, 1).to(type).unsqueeze(1);
  const at::Tensor wide_sin = at::cat({sin, sin}, 1).to(type).unsqueeze(1);
  return {"rotate",
          [=, &ops]() mutable {
            ops.Run(op::ApplyRope{qkv, cos, sin, shape, heads, 1});
          },
          [=] {
            const at::Tensor x = qkv.view({kTokens, 24, 64}).narrow(1, 0, 16);
            const at::Tensor turned = at::cat({-x.narrow(2, 32, 32), x.narrow(2, 0, 32)}, 2);
            x* wide_cos + turned* wide_sin;
          }};
}

Case SwiGlu(DeviceOps& ops, at::ScalarType type) {
  const at::Tensor gate_up = Random({kTokens, 2 * kInner}, type);
  const at::Tensor gate = gate_up.narrow(1, 0, kInner), up = gate_up.narrow(1, kInner, kInner);
  at::Tensor out = at::empty({kTokens, kInner}, type);
  return {"swiglu",
          [=, &ops]() mutable {
            ops.Run(op::SwiGlu{gate_up, out});
          },
          [=] { at::silu(gate) * up; }};
}

Case SwiGluBackward(DeviceOps& ops, at::ScalarType type) {
  const at::Tensor start = Random({kTokens, 2 * kInner}, type);
  const at::Tensor out_gradient = Random({kTokens, kInner}, type);
  at::Tensor gate_up = start.clone(), out = at::empty({kTokens, kInner}, type);
  const at::Tensor gate = start.narrow(1, 0, kInner).clone().requires_grad_();
  const at::Tensor up = start.narrow(1, kInner, kInner).clone().requires_grad_();
  const at::Tensor gated = at::silu(gate) * up;
  return {"swiglu_backward",
          [=, &ops]() mutable {
            ops.Run(op::SwiGluBackward{gate_up, out_gradient, out});
          },
          [=] {
            grad({gated}, {gate, up}, {out_gradient}, true);
          },
          [=] { gate_up.copy_(start); }};
}

Case CrossEntropy(DeviceOps& ops, at::ScalarType type) {
  const at::Tensor start = Random({kTokens, kWords}, type);
  const at::Tensor labels = at::randint(kWords, {kTokens}, at::kLong);
  at::Tensor logits = start.clone(), loss = at::zeros({1}, at::kDouble);
  return {"cross_entropy",
          [=, &ops]() mutable {
            ops.Run(op::CrossEntropy{logits, labels, 1e-3, loss});
          },
          [=] {
            const at::Tensor leaf = start.detach().requires_grad_();
            grad({at::cross_entropy_loss(leaf, labels)}, {leaf});
          },
          [=] { logits.copy_(start); }};
}

Case EmbeddingBackward(DeviceOps& ops, at::ScalarType type) {
  const at::Tensor gradient = Random({kTokens, kHidden}, type);
  const at::Tensor ids = at::randint(kWords, {kTokens}, at::kLong);
  const at::Tensor table = at::empty({kWords, kHidden});
  return {"embedding_backward",
          [=, &ops] {
            ops.Run(op::EmbeddingBackward{gradient, ids, {table, false}});
          },
          [=] { at::embedding_dense_backward(gradient, ids, kWords, -1, false); }};
}

Case AdamW(DeviceOps& ops) {
  const at::Tensor weight = Flat(ops, at::kFloat).normal_();
  const at::Tensor gradient = Flat(ops, at::kFloat).normal_();
  const at::Tensor exp_avg = Flat(ops, at::kFloat), exp_avg_sq = Flat(ops, at::kFloat);
  const at::Tensor low_precision = Flat(ops, at::kBFloat16), step = at::ones({});
  const OptimizerArrays arrays{.weight = weight.data_ptr(),
                               .exp_avg = exp_avg.data_ptr(),
                               .exp_avg_sq = exp_avg_sq.data_ptr(),
                               .gradient = gradient.data_ptr(),
                               .low_precision = low_precision.data_ptr(),
                               .count = kWeights};
  return {"adamw_with_bf16_shadow",
          [=, &ops] {
            ops.Run(op::AdamW{arrays, {}, {.number = 2, .lr = 1e-4}});
          },
          [=] {
            at::_fused_adamw_({weight}, {gradient}, {exp_avg}, {exp_avg_sq}, {}, {step}, 1e-4, 0.9,
                              0.95, 0.01, 1e-8, false, false);
            low_precision.copy_(weight);
          }};
}

// As with snapshots: from one slot of the state into the other, which take turns. Compared with the
// update in place.
Case AdamWIntoOtherSlot(DeviceOps& ops) {
  std::array<std::array<at::Tensor, 3>, 2> slots;
  for (auto& slot : slots) {
    for (at::Tensor& each : slot) each = Flat(ops, at::kFloat);
  }
  const at::Tensor gradient = Flat(ops, at::kFloat).normal_();
  const at::Tensor low_precision = Flat(ops, at::kBFloat16);
  const auto update = [=, &ops](int from, int to) {
    ops.Run(op::AdamW{{.weight = slots[to][0].data_ptr(),
                       .exp_avg = slots[to][1].data_ptr(),
                       .exp_avg_sq = slots[to][2].data_ptr(),
                       .old_weight = slots[from][0].data_ptr(),
                       .old_exp_avg = slots[from][1].data_ptr(),
                       .old_exp_avg_sq = slots[from][2].data_ptr(),
                       .gradient = gradient.data_ptr(),
                       .low_precision = low_precision.data_ptr(),
                       .count = kWeights},
                      {},
                      {.number = 2, .lr = 1e-4}});
  };
  return {"adamw_into_other_slot",
          [update, from = 0]() mutable {
            update(from, 1 - from);
            from = 1 - from;
          },
          [update] { update(0, 0); }};
}

Case SumOfSquares(DeviceOps& ops, at::ScalarType type, ElementType element) {
  const at::Tensor values = Flat(ops, type).normal_();
  at::Tensor sum = at::zeros({1}, at::kDouble);
  return {"sum_of_squares",
          [=, &ops]() mutable {
            ops.Run(op::SumOfSquares{values.data_ptr(), element, kWeights, sum});
          },
          [=] { at::linalg_vector_norm(values); }};
}

Case Convert(DeviceOps& ops, at::ScalarType from, at::ScalarType to, bool add) {
  const auto element = [](at::ScalarType type) {
    return type == at::kFloat ? ElementType::kFloat32 : ElementType::kBFloat16;
  };
  const ElementType from_element = element(from), to_element = element(to);
  const at::Tensor source = Flat(ops, from).normal_(), target = Flat(ops, to);
  return {std::string(add ? "add to " : "convert to ") + at::toString(to),
          [=, &ops] {
            ops.Run(op::Convert{source.data_ptr(), from_element, target.data_ptr(), to_element,
                                kWeights, add});
          },
          [=] { add ? target.add_(source) : target.copy_(source); }};
}

// Into bf16, from doubly quantised values; LibTorch has no more than a table of levels to offer.
Case DequantizeNf4(DeviceOps& ops) {
  const Nf4Tensor tensor = QuantizeNf4(at::randn({kWeights}), /*double_quantized=*/true);
  at::Tensor out = Flat(ops, at::kBFloat16);
  const at::Tensor levels = at::tensor(at::ArrayRef<float>(kNf4Levels, 16));
  return {"dequantize_nf4",
          [=, &ops]() mutable {
            ops.Run(op::DequantizeNf4{tensor.source(), out});
          },
          [=]() mutable {
            const at::Tensor pairs =
                at::stack({tensor.codes.bitwise_right_shift(4), tensor.codes.bitwise_and(15)}, 1);
            const at::Tensor each = levels.index({pairs.view({-1}).to(at::kInt)});
            const at::Tensor scale = tensor.nested_code.index({tensor.absmax_codes.to(at::kInt)})
                                         .mul_(tensor.nested_absmax.repeat_interleave(256))
                                         .add_(tensor.offset);
            out.copy_(each.view({-1, 64}).mul(scale.unsqueeze(1)).view({-1}));
          }};
}

// What is written, per second.
json WithRate(json measured, double bytes) {
  measured["muster_gb_per_s"] = bytes / measured["muster_ms"].get<double>() * 1e-6;
  return measured;
}

int Run(int repetitions) {
  at::set_num_threads(1);
  at::manual_seed(1);
  const auto ops = MakeCpuOps();
  json results = json::array();
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    const ElementType element = type == at::kFloat      ? ElementType::kFloat32
                                : type == at::kBFloat16 ? ElementType::kBFloat16
                                                        : ElementType::kFloat16;
    for (const auto make : {AddNorm, NormBackward, ApplyRope, SwiGlu, SwiGluBackward, CrossEntropy,
                            EmbeddingBackward}) {
      results.push_back(Measure(make(*ops, type), at::toString(type), repetitions));
    }
    results.push_back(Measure(SumOfSquares(*ops, type, element), at::toString(type), repetitions));
  }
  results.push_back(Measure(AdamW(*ops), "Float", repetitions));
  results.push_back(Measure(AdamWIntoOtherSlot(*ops), "Float", repetitions));
  for (const bool add : {false, true}) {
    results.push_back(Measure(Convert(*ops, at::kFloat, at::kBFloat16, add), "Float", repetitions));
    results.push_back(
        Measure(Convert(*ops, at::kBFloat16, at::kFloat, add), "BFloat16", repetitions));
    results.push_back(Measure(Convert(*ops, at::kFloat, at::kFloat, add), "Float", repetitions));
  }
  results.push_back(WithRate(Measure(DequantizeNf4(*ops), "BFloat16", repetitions), 2 * kWeights));
  const json report = {{"benchmark", "kernels"},
                       {"instructions", ops->Describe()},
                       {"repetitions", repetitions},
                       {"results", results}};
  std::printf("%s\n", report.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 15;
  if (repetitions < 1) {
    std::fprintf(stderr, "usage: kernels_bench [REPETITIONS]\n");
    return 2;
  }
  return muster::Run(repetitions);
}
