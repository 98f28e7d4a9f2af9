// What config.json says of experts, and the tensors and units that follow.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "trainer/model/families/read_config.h"
#include "trainer/model/families/units.h"

namespace muster {
namespace {

using Json = nlohmann::json;

Json Small(const std::string& architecture) {
  return {{"architectures", {architecture}},
          {"hidden_size", 12},
          {"intermediate_size", 20},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"head_dim", 8},
          {"vocab_size", 40}};
}

Result<ModelConfig> Read(const std::string& architecture, const Json& more = Json::object()) {
  Json config = Small(architecture);
  config.update(more);
  return ParseModelConfig(config.dump(), "config.json");
}

std::string Refusal(const std::string& architecture, const Json& more) {
  return Read(architecture, more).status().message();
}

TEST(ExpertsConfig, DefaultsAreThoseOfTransformers) {
  const auto qwen = Read("Qwen3MoeForCausalLM"), olmoe = Read("OlmoeForCausalLM"),
             mixtral = Read("MixtralForCausalLM");
  ASSERT_TRUE(qwen.ok() && olmoe.ok() && mixtral.ok());
  EXPECT_EQ(qwen->experts->count, 128);
  EXPECT_EQ(qwen->experts->per_token, 8);
  EXPECT_EQ(qwen->experts->intermediate_size, 768);
  EXPECT_FALSE(qwen->experts->normalizes_weights);
  EXPECT_EQ(olmoe->experts->count, 64);
  EXPECT_EQ(olmoe->experts->intermediate_size, 20);
  EXPECT_EQ(mixtral->experts->count, 8);
  EXPECT_EQ(mixtral->experts->per_token, 2);
  EXPECT_TRUE(mixtral->experts->normalizes_weights);
  EXPECT_FALSE(mixtral->sliding_window.has_value());
  EXPECT_DOUBLE_EQ(mixtral->rope_theta, 1e6);
  for (const auto& config : {qwen, olmoe, mixtral}) {
    EXPECT_EQ(config->experts->balance_coefficient, 0);
    EXPECT_EQ(config->SparseLayers(), 3);
  }
}

TEST(ExpertsConfig, Qwen2HasAnExpertThatEveryTokenHas) {
  const auto config = Read("Qwen2MoeForCausalLM");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->experts->count, 60);
  EXPECT_EQ(config->experts->per_token, 4);
  EXPECT_EQ(config->experts->intermediate_size, 1408);
  EXPECT_EQ(config->experts->shared_intermediate_size, 5632);
  EXPECT_TRUE(config->qkv_bias);
  const auto given =
      Read("Qwen2MoeForCausalLM", {{"shared_expert_intermediate_size", 6}, {"qkv_bias", false}});
  ASSERT_TRUE(given.ok()) << given.status().message();
  EXPECT_EQ(given->experts->shared_intermediate_size, 6);
  EXPECT_FALSE(given->qkv_bias);
  EXPECT_NE(Refusal("Qwen3MoeForCausalLM", {{"shared_expert_intermediate_size", 6}})
                .find("shared_expert_intermediate_size other than 0"),
            std::string::npos);
}

TEST(ExpertsConfig, BalanceIsTrainedWhereTheRouterLogitsAreAskedFor) {
  EXPECT_DOUBLE_EQ(
      Read("OlmoeForCausalLM", {{"output_router_logits", true}})->experts->balance_coefficient,
      0.01);
  const Json given = {{"output_router_logits", true}, {"router_aux_loss_coef", 0.5}};
  EXPECT_DOUBLE_EQ(Read("MixtralForCausalLM", given)->experts->balance_coefficient, 0.5);
  const Json none = {{"output_router_logits", true}, {"router_aux_loss_coef", 0.0}};
  EXPECT_EQ(Read("MixtralForCausalLM", none)->experts->balance_coefficient, 0);
}

TEST(ExpertsConfig, LayersBetweenAreDense) {
  const auto steps = Read("Qwen3MoeForCausalLM", {{"decoder_sparse_step", 2}});
  ASSERT_TRUE(steps.ok());
  EXPECT_EQ(steps->experts->sparse_layers, (std::vector<bool>{false, true, false}));
  const auto named = Read("Qwen3MoeForCausalLM", {{"mlp_only_layers", {1, 7}}});
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->experts->sparse_layers, (std::vector<bool>{true, false, true}));
  EXPECT_FALSE(Read("Qwen3MoeForCausalLM", {{"num_experts", 0}})->experts.has_value());
}

TEST(ExpertsConfig, WhatIsNotImplementedIsRefusedByName) {
  EXPECT_NE(Refusal("OlmoeForCausalLM", {{"clip_qkv", 8.0}}).find("clip_qkv"), std::string::npos);
  EXPECT_NE(Refusal("MixtralForCausalLM", {{"router_jitter_noise", 0.1}}).find("router_jitter"),
            std::string::npos);
  EXPECT_EQ(Refusal("MixtralForCausalLM", {{"num_local_experts", 2}, {"num_experts_per_tok", 3}}),
            "config.json: num_experts_per_tok is 3, more than the 2 experts of a layer");
  EXPECT_NE(Refusal("Qwen3MoeForCausalLM", {{"mlp_only_layers", 1}}).find("mlp_only_layers"),
            std::string::npos);
}

TEST(ExpertUnits, ExpertsAreAUnitBehindThatOfTheirBlock) {
  const auto config = Read("MixtralForCausalLM", {{"num_local_experts", 2}});
  ASSERT_TRUE(config.ok());
  const std::vector<UnitSpec> units = ModelUnits(*config);
  ASSERT_EQ(units.size(), 8u);
  EXPECT_EQ(units[3].name, "block.1");
  EXPECT_EQ(units[3].blocks.part, BlockPart::kWithoutExperts);
  EXPECT_EQ(units[3].tensors.back().name, "model.layers.1.block_sparse_moe.gate.weight");
  EXPECT_EQ(units[4].name, "block.1.experts");
  EXPECT_EQ(units[4].blocks.first, 1);
  ASSERT_EQ(units[4].tensors.size(), 6u);
  EXPECT_EQ(units[4].tensors[2].name, "model.layers.1.block_sparse_moe.experts.1.w1.weight");
  EXPECT_EQ(units[4].tensors[3].name, "model.layers.1.block_sparse_moe.experts.1.w3.weight");
  EXPECT_EQ(units[4].tensors[4].name, "model.layers.1.block_sparse_moe.experts.0.w2.weight");
}

TEST(ExpertUnits, ParametersAreThoseOfTheTensors) {
  for (const char* name :
       {"Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM", "OlmoeForCausalLM", "MixtralForCausalLM"}) {
    const auto config =
        Read(name, {{"num_experts", 4}, {"num_experts_per_tok", 3}, {"mlp_only_layers", {0}}});
    ASSERT_TRUE(config.ok()) << config.status().message();
    std::int64_t count = 0, of_an_expert = 0;
    for (const UnitTensor& tensor : ModelTensors(*config)) {
      count += ElementCount(tensor.shape);
      const bool fourth = tensor.name.find("experts.3.") != std::string::npos;
      if (fourth) of_an_expert += ElementCount(tensor.shape);
    }
    EXPECT_EQ(config->ParameterCount(), count) << name;
    EXPECT_EQ(config->ActiveParameterCount(), count - of_an_expert) << name;
  }
}

}  // namespace
}  // namespace muster
