#include "trainer/model/router.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "trainer/model/arena.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace muster {
namespace {

constexpr std::int64_t kRouted = 64, kWidth = 16;

struct Choice {
  at::Tensor experts, weights;
};

Choice Route(const ModelConfig& config, const at::Tensor& x, const BlockWeights& weights) {
  const auto ops = MakeCpuOps();
  Arena arena(*ops);
  Routing routing;
  at::Tensor logits;
  arena.Fit([&](BumpAllocator& allocator) {
    routing = CutRouting(*config.experts, allocator, x.size(0), x.scalar_type());
    logits = allocator.Cut({x.size(0), config.experts->count}, x.scalar_type());
  });
  Router(config, *ops).Forward(x, weights, logits, routing);
  return {routing.experts.clone(), routing.weights.clone()};
}

// As transformers writes it: modeling_qwen3_moe.py (Qwen3MoeTopKRouter), which modeling_mixtral.py
// and modeling_olmoe.py follow, and modeling_gpt_oss.py (GptOssTopKRouter).
Choice Transformers(const ExpertsConfig& config, const at::Tensor& x, const BlockWeights& weights) {
  const at::ScalarType wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor logits = at::matmul(x, weights.router.t());
  if (config.picks_by_logit) {
    logits = logits + weights.router_bias;
    auto [values, experts] = logits.topk(config.per_token, -1);
    return {experts, values.softmax(-1, wide)};
  }
  auto [values, experts] = logits.softmax(-1, wide).topk(config.per_token, -1);
  if (config.normalizes_weights) values = values / values.sum(-1, /*keepdim=*/true);
  return {experts, values};
}

// Experts share five rows, so that most choices are between equal ones.
BlockWeights WeightsWithTies(std::int64_t count, at::ScalarType type, bool with_bias) {
  BlockWeights weights;
  const at::Tensor rows = at::randn({5, kWidth}).to(type);
  weights.router = rows.index_select(0, at::arange(count).remainder(5));
  if (with_bias) weights.router_bias = at::zeros({count}, type);
  return weights;
}

TEST(RouterTies, AreResolvedAsTransformersResolvesThem) {
  at::manual_seed(11);
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const bool by_logit : {false, true}) {
      for (const auto& [count, per_token] : {std::pair(8, 2), std::pair(32, 4), std::pair(128, 8),
                                             std::pair(7, 7), std::pair(1, 1)}) {
        ModelConfig config;
        config.hidden_size = kWidth;
        config.num_hidden_layers = 1;
        config.experts = {.count = count,
                          .per_token = per_token,
                          .intermediate_size = 8,
                          .normalizes_weights = true,
                          .picks_by_logit = by_logit};
        const BlockWeights weights = WeightsWithTies(count, type, by_logit);
        const at::Tensor x = at::randn({kRouted, kWidth}).to(type);
        const Choice found = Route(config, x, weights);
        const Choice expected = Transformers(*config.experts, x, weights);
        EXPECT_TRUE(at::equal(found.experts, expected.experts))
            << type << ", " << count << " experts, by logit: " << by_logit;
        EXPECT_TRUE(at::allclose(found.weights, expected.weights, 1e-6, 0))
            << type << ", " << count << " experts, by logit: " << by_logit;
      }
    }
  }
}

// Padding, and a network that has not learned yet: all logits are zero.
TEST(RouterTies, OfAllExpertsGiveEachTokenTheSame) {
  for (const bool by_logit : {false, true}) {
    ModelConfig config;
    config.hidden_size = kWidth;
    config.num_hidden_layers = 1;
    config.experts = {
        .count = 64, .per_token = 8, .intermediate_size = 8, .picks_by_logit = by_logit};
    BlockWeights weights;
    weights.router = at::zeros({64, kWidth});
    if (by_logit) weights.router_bias = at::zeros({64});
    const Choice found = Route(config, at::randn({kRouted, kWidth}), weights);
    const at::Tensor expected = std::get<1>(at::zeros({1, 64}).topk(8, -1));
    EXPECT_TRUE(at::equal(found.experts, expected.expand({kRouted, 8})));
  }
}

}  // namespace
}  // namespace muster
