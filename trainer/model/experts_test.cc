#include "trainer/model/experts.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "trainer/model/arena.h"
#include "trainer/model/testing/model_testing.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace muster {
namespace {

constexpr std::int64_t kTokens = 300, kHidden = 40, kExperts = 48, kInner = 24, kPerToken = 4;

ModelConfig Config() {
  ModelConfig config;
  config.hidden_size = kHidden;
  config.num_hidden_layers = 1;
  config.experts = {.count = kExperts,
                    .per_token = kPerToken,
                    .intermediate_size = kInner,
                    .normalizes_weights = true};
  return config;
}

// A layer forward and backward on so many threads: y, the gradients of x and of both matrices.
std::vector<at::Tensor> RunLayer(at::ScalarType type, int threads) {
  at::set_num_threads(threads);
  at::manual_seed(3);
  const ModelConfig config = Config();
  const auto ops = MakeCpuOps();
  const auto random = [&](at::IntArrayRef of) { return (at::randn(of) * 0.2).to(type); };
  BlockWeights weights;
  weights.router = random({kExperts, kHidden});
  // The last experts get no row.
  weights.router_bias = at::zeros({kExperts}, type);
  weights.router_bias.narrow(0, kExperts - 3, 3).fill_(-100);
  weights.expert_gate_up.weight = random({kExperts * 2 * kInner, kHidden});
  weights.expert_down.weight = random({kExperts * kHidden, kInner});
  const at::Tensor x = random({kTokens, kHidden}), y_gradient = random({kTokens, kHidden});
  BlockGradients gradients;
  for (auto [to, like] : {std::pair(&gradients.expert_gate_up, &weights.expert_gate_up),
                          std::pair(&gradients.expert_down, &weights.expert_down)}) {
    to->weight = {at::full_like(like->weight, 9), false};
  }
  Experts experts(config, *ops, {});
  Router router(config, *ops);
  Arena arena(*ops);
  Routing routing;
  ExpertScratch scratch;
  at::Tensor gate_up, logits, y, x_gradient;
  arena.Fit([&](BumpAllocator& allocator) {
    routing = CutRouting(*config.experts, allocator, kTokens, type);
    scratch = CutExpertScratch(config, {}, allocator, kTokens * kPerToken, type);
    gate_up = CutExpertGateUp(config, allocator, kTokens * kPerToken, type);
    logits = allocator.Cut({kTokens, kExperts}, type);
    y = allocator.Cut({kTokens, kHidden}, type);
    x_gradient = allocator.Cut({kTokens, kHidden}, type);
  });
  router.Forward(x, weights, logits, routing);
  EXPECT_EQ(routing.begins[kExperts - 3], routing.begins[kExperts]);
  experts.GateUp(x, weights, routing, scratch, gate_up);
  experts.Output(weights, routing, gate_up, scratch, y);
  experts.Backward(x, y_gradient, weights, gradients, routing, scratch, gate_up, x_gradient);
  return {y.clone(), x_gradient.clone(), gradients.expert_gate_up.weight.tensor,
          gradients.expert_down.weight.tensor};
}

TEST(ExpertsOfThreads, AreWorthWhatOneThreadMakesOfAll) {
  const int before = at::get_num_threads();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const std::vector<at::Tensor> alone = RunLayer(type, 1);
    EXPECT_EQ(alone[3].narrow(0, (kExperts - 3) * kHidden, 3 * kHidden).abs().max().item<double>(),
              0);
    // The library of products may sum in another order for another number of threads, as MKL does
    // on processors of AMD; for the same number it never does, by which a resumed job has the same
    // bits.
    const double rounding = type == at::kFloat ? 1e-6 : 1e-2;
    for (const int threads : {2, 3}) {
      const std::vector<at::Tensor> shared = RunLayer(type, threads);
      const std::vector<at::Tensor> again = RunLayer(type, threads);
      for (std::size_t i = 0; i < alone.size(); ++i) {
        EXPECT_LE(RelativeDifference(shared[i], alone[i]), rounding) << type << ", result " << i;
        EXPECT_TRUE(at::equal(shared[i], again[i])) << type << ", result " << i;
      }
    }
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace muster
