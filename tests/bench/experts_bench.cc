// The experts of a layer beside a dense layer of as many products, forward and backward, as JSON.
//
//   experts_bench [TOKENS HIDDEN EXPERTS INNER PER_TOKEN [REPETITIONS]]    default 4096 512 128 256
//   8 7
//
// Tokens go to experts at random, each to PER_TOKEN of them. The dense layer has PER_TOKEN * INNER
// in place of INNER. Both take turns on the threads that OMP_NUM_THREADS says, in fp32 and in bf16.
// Times are of the wall clock; a ratio is that of one turn, and the median of all is given.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "common/base/json.h"
#include "trainer/model/arena.h"
#include "trainer/model/experts.h"
#include "trainer/model/linear.h"
#include "trainer/model/router.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/swiglu.h"

namespace muster {
namespace {

struct Shape {
  std::int64_t tokens = 4096, hidden = 512, experts = 128, inner = 256, per_token = 8;
  int repetitions = 7;
};

ModelConfig ConfigOf(const Shape& shape) {
  ModelConfig config;
  config.hidden_size = shape.hidden;
  config.num_hidden_layers = 1;
  config.experts = {.count = shape.experts,
                    .per_token = shape.per_token,
                    .intermediate_size = shape.inner,
                    .normalizes_weights = true};
  return config;
}

class Mixture {
 public:
  Mixture(const Shape& shape, at::ScalarType type, DeviceOps& ops)
      : config_(ConfigOf(shape)), experts_(config_, ops, {}), router_(config_, ops), arena_(ops) {
    const std::int64_t rows = shape.tokens * shape.per_token;
    arena_.Fit([&](BumpAllocator& allocator) {
      routing_ = CutRouting(*config_.experts, allocator, shape.tokens, type);
      scratch_ = CutExpertScratch(config_, {}, allocator, rows, type);
      gate_up_ = CutExpertGateUp(config_, allocator, rows, type);
      logits_ = allocator.Cut({shape.tokens, shape.experts}, type);
      y_ = allocator.Cut({shape.tokens, shape.hidden}, type);
      x_gradient_ = allocator.Cut({shape.tokens, shape.hidden}, type);
    });
    const auto random = [&](at::IntArrayRef of) { return (at::randn(of) * 0.05).to(type); };
    weights_.router = random({shape.experts, shape.hidden});
    weights_.expert_gate_up.weight = random({shape.experts * 2 * shape.inner, shape.hidden});
    weights_.expert_down.weight = random({shape.experts * shape.hidden, shape.inner});
    gradients_.expert_gate_up.weight = {at::empty_like(weights_.expert_gate_up.weight), false};
    gradients_.expert_down.weight = {at::empty_like(weights_.expert_down.weight), false};
    x_ = random({shape.tokens, shape.hidden});
    y_gradient_ = random({shape.tokens, shape.hidden});
    router_.Forward(x_, weights_, logits_, routing_);
  }

  void Run() {
    experts_.GateUp(x_, weights_, routing_, scratch_, gate_up_);
    experts_.Output(weights_, routing_, gate_up_, scratch_, y_);
    experts_.Backward(x_, y_gradient_, weights_, gradients_, routing_, scratch_, gate_up_,
                      x_gradient_);
  }
  std::int64_t fewest_rows() const {
    std::int64_t fewest = routing_.begins[1];
    for (std::size_t e = 1; e + 1 < routing_.begins.size(); ++e)
      fewest = std::min(fewest, routing_.begins[e + 1] - routing_.begins[e]);
    return fewest;
  }

 private:
  const ModelConfig config_;
  Experts experts_;
  Router router_;
  Arena arena_;
  Routing routing_;
  ExpertScratch scratch_;
  BlockWeights weights_;
  BlockGradients gradients_;
  at::Tensor gate_up_, logits_, y_, x_, y_gradient_, x_gradient_;
};

class Dense {
 public:
  Dense(const Shape& shape, at::ScalarType type, DeviceOps& ops) : ops_(ops), products_(ops) {
    const std::int64_t inner = shape.per_token * shape.inner;
    const auto random = [&](at::IntArrayRef of) { return (at::randn(of) * 0.05).to(type); };
    weight_in_ = random({2 * inner, shape.hidden});
    weight_out_ = random({shape.hidden, inner});
    gradient_in_ = at::empty_like(weight_in_);
    gradient_out_ = at::empty_like(weight_out_);
    x_ = random({shape.tokens, shape.hidden});
    y_gradient_ = random({shape.tokens, shape.hidden});
    y_ = at::empty_like(x_);
    x_gradient_ = at::empty_like(x_);
    gate_up_ = random({shape.tokens, 2 * inner});
    gated_ = random({shape.tokens, inner});
    gated_gradient_ = at::empty_like(gated_);
  }

  void Run() {
    LinearForward(x_, weight_in_, gate_up_);
    ops_.Run(op::SwiGlu{gate_up_, gated_});
    LinearForward(gated_, weight_out_, y_);
    LinearInputGradient(y_gradient_, weight_out_, gated_gradient_);
    ops_.Run(op::SwiGluBackward{gate_up_, gated_gradient_, gated_});
    products_.Write(y_gradient_, gated_, {gradient_out_, false});
    products_.Write(gate_up_, x_, {gradient_in_, false});
    LinearInputGradient(gate_up_, weight_in_, x_gradient_);
  }

 private:
  DeviceOps& ops_;
  LinearWeightGradient products_;
  at::Tensor weight_in_, weight_out_, gradient_in_, gradient_out_, x_, y_gradient_, y_, x_gradient_,
      gate_up_, gated_, gated_gradient_;
};

double Seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

nlohmann::json Measure(const Shape& shape, at::ScalarType type, DeviceOps& ops) {
  Mixture mixture(shape, type, ops);
  Dense dense(shape, type, ops);
  std::vector<double> seconds, dense_seconds, ratios;
  for (int i = 0; i <= shape.repetitions; ++i) {
    const double mine = Seconds([&] { mixture.Run(); }), other = Seconds([&] { dense.Run(); });
    if (i == 0) continue;  // warm
    seconds.push_back(mine);
    dense_seconds.push_back(other);
    ratios.push_back(mine / other);
  }
  return {{"type", type == at::kFloat ? "fp32" : "bf16"},
          {"fewest_rows_of_an_expert", mixture.fewest_rows()},
          {"seconds", Median(seconds)},
          {"dense_seconds", Median(dense_seconds)},
          {"ratio", Median(ratios)},
          {"ratios", ratios}};
}

int Run(const Shape& shape) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  const auto ops = MakeCpuOps();
  nlohmann::json report = {{"benchmark", "experts"},
                           {"instructions", ops->Describe()},
                           {"threads", at::get_num_threads()},
                           {"tokens", shape.tokens},
                           {"hidden", shape.hidden},
                           {"experts", shape.experts},
                           {"inner", shape.inner},
                           {"per_token", shape.per_token}};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    report["results"].push_back(Measure(shape, type, *ops));
  std::printf("%s\n", report.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  muster::Shape shape;
  std::int64_t* const fields[] = {&shape.tokens, &shape.hidden, &shape.experts, &shape.inner,
                                  &shape.per_token};
  for (int i = 1; i < argc && i <= 5; ++i) *fields[i - 1] = std::atoll(argv[i]);
  if (argc > 6) shape.repetitions = std::atoi(argv[6]);
  const bool fits =
      shape.per_token <= shape.experts && shape.repetitions > 0 &&
      std::ranges::all_of(fields, [](const std::int64_t* field) { return *field > 0; });
  if (!fits) {
    std::fprintf(stderr,
                 "usage: experts_bench [TOKENS HIDDEN EXPERTS INNER PER_TOKEN [REPETITIONS]]\n");
    return 2;
  }
  return muster::Run(shape);
}
