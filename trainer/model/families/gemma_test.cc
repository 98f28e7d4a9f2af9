#include "trainer/model/families/gemma.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trainer/model/families/read_config.h"
#include "trainer/model/families/units.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Config(const std::string& architecture, const std::string& extra = "") {
  return R"({"architectures": [")" + architecture + R"("], "hidden_size": 48,
    "intermediate_size": 172, "num_hidden_layers": 7, "num_attention_heads": 4,
    "vocab_size": 320, "hidden_act": "gelu_pytorch_tanh")" +
         extra + "}";
}

ModelConfig Read(const std::string& json) {
  const auto config = ParseModelConfig(json, "config.json");
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : ModelConfig();
}

std::string Refusal(const std::string& json) {
  const auto config = ParseModelConfig(json, "config.json");
  return config.ok() ? "" : config.status().message();
}

TEST(Gemma2, HasWhatTransformersPutsWhereKeysAreAbsent) {
  const ModelConfig config = Read(Config("Gemma2ForCausalLM"));
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.norm_placement, NormPlacement::kBoth);
  EXPECT_TRUE(config.zero_centered_norms);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_EQ(config.sliding_window, 4096);
  EXPECT_EQ(config.max_position_embeddings, 8192);
  EXPECT_THAT(config.attention.full_layers,
              ElementsAre(false, true, false, true, false, true, false));
  EXPECT_EQ(config.WindowOf(0), 4096);
  EXPECT_EQ(config.WindowOf(1), std::nullopt);
  EXPECT_DOUBLE_EQ(config.attention_multiplier, 1.0 / 16);
  EXPECT_DOUBLE_EQ(config.attention.cap, 50);
  EXPECT_DOUBLE_EQ(config.logit_cap, 30);
  EXPECT_DOUBLE_EQ(config.embedding_multiplier * config.embedding_multiplier, 48);
  EXPECT_TRUE(config.rounds_embedding_multiplier);
  EXPECT_DOUBLE_EQ(config.rope_theta, 1e4);
  EXPECT_FALSE(config.attention.window_rope_theta.has_value());
  EXPECT_EQ(config.qk_norms, QkNorms::kNone);
}

TEST(Gemma2, TakesWhatItsConfigNames) {
  const ModelConfig config =
      Read(Config("Gemma2ForCausalLM", R"(, "num_hidden_layers": 2, "query_pre_attn_scalar": 64,
        "layer_types": ["full_attention", "sliding_attention"], "sliding_window": 5,
        "attn_logit_softcapping": null, "final_logit_softcapping": 7.5, "head_dim": 10)"));
  EXPECT_THAT(config.attention.full_layers, ElementsAre(true, false));
  EXPECT_EQ(config.WindowOf(0), std::nullopt);
  EXPECT_EQ(config.WindowOf(1), 5);
  EXPECT_DOUBLE_EQ(config.attention.cap, 0);
  EXPECT_DOUBLE_EQ(config.logit_cap, 7.5);
  EXPECT_DOUBLE_EQ(config.attention_multiplier, 0.125);
  EXPECT_EQ(config.head_dim, 10);
}

TEST(Gemma2, HasFourNormsInEachLayerAndCountsThem) {
  const ModelConfig config = Read(Config("Gemma2ForCausalLM"));
  std::vector<std::string> of_first;
  std::int64_t elements = 0;
  for (const UnitTensor& tensor : ModelTensors(config)) {
    elements += ElementCount(tensor.shape);
    if (tensor.name.starts_with("model.layers.0.") && tensor.shape.size() == 1)
      of_first.push_back(tensor.name.substr(std::string("model.layers.0.").size()));
  }
  EXPECT_EQ(elements, config.ParameterCount());
  EXPECT_THAT(of_first,
              ElementsAre("input_layernorm.weight", "post_attention_layernorm.weight",
                          "pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"));
}

TEST(Gemma3, HasTwoBasesAndEverySixthLayerWithoutAWindow) {
  const ModelConfig config = Read(Config("Gemma3ForCausalLM"));
  EXPECT_THAT(config.attention.full_layers,
              ElementsAre(false, false, false, false, false, true, false));
  EXPECT_EQ(config.qk_norms, QkNorms::kPerHead);
  EXPECT_EQ(config.max_position_embeddings, 131072);
  EXPECT_DOUBLE_EQ(config.rope_theta, 1e6);
  EXPECT_EQ(config.attention.window_rope_theta, 1e4);
  EXPECT_DOUBLE_EQ(config.attention.cap, 0);
  EXPECT_DOUBLE_EQ(config.logit_cap, 0);
  EXPECT_FALSE(config.rope_scaling.has_value());
  const ModelConfig other = Read(Config("Gemma3ForCausalLM", R"(, "sliding_window_pattern": 3)"));
  EXPECT_THAT(other.attention.full_layers,
              ElementsAre(false, false, true, false, false, true, false));
}

TEST(Gemma3, ReadsItsRotationsInBothForms) {
  const RopeScaling expected{.kind = RopeKind::kLinear, .factor = 8};
  for (const char* extra : {R"(, "rope_theta": 2e6, "rope_local_base_freq": 5000.0,
          "rope_scaling": {"rope_type": "linear", "factor": 8.0})",
                            R"(, "rope_parameters": {
          "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
          "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}})"}) {
    const ModelConfig config = Read(Config("Gemma3ForCausalLM", extra));
    EXPECT_DOUBLE_EQ(config.rope_theta, 2e6);
    EXPECT_EQ(config.attention.window_rope_theta, 5000);
    EXPECT_EQ(config.rope_scaling, expected);
    EXPECT_EQ(config.ContextLength(), 131072);
  }
}

TEST(Gemma, IsRefusedByNameWhereSomethingIsNotSupported) {
  const std::string second = "Gemma2ForCausalLM", third = "Gemma3ForCausalLM";
  for (const std::string& name : {second, third}) {
    EXPECT_THAT(Refusal(Config(name, R"(, "hidden_activation": "relu")")), HasSubstr("relu"));
    EXPECT_THAT(Refusal(Config(name, R"(, "use_bidirectional_attention": true)")),
                HasSubstr("use_bidirectional_attention"));
    EXPECT_THAT(Refusal(Config(name, R"(, "attention_bias": true)")), HasSubstr("attention_bias"));
    EXPECT_THAT(Refusal(Config(name, R"(, "sliding_window": null)")), HasSubstr("sliding_window"));
    EXPECT_THAT(Refusal(Config(name, R"(, "layer_types": ["full_attention"])")),
                HasSubstr("layer_types"));
    EXPECT_THAT(Refusal(Config(name, R"(, "num_hidden_layers": 1, "layer_types": ["chunked"])")),
                HasSubstr("chunked"));
  }
  EXPECT_THAT(Refusal(Config(second, R"(, "final_logit_softcapping": -1)")),
              HasSubstr("final_logit_softcapping"));
  EXPECT_THAT(Refusal(Config(third, R"(, "attn_logit_softcapping": 50.0)")),
              HasSubstr("attn_logit_softcapping"));
  EXPECT_THAT(Refusal(Config(third, R"(, "rope_parameters": {"sliding_attention":
                  {"rope_type": "linear", "factor": 2.0}})")),
              HasSubstr("sliding_attention"));
  EXPECT_THAT(Refusal(Config(third, R"(, "rope_parameters": {"full_attention":
                  {"rope_type": "su", "factor": 2.0}})")),
              HasSubstr("rope_parameters: full_attention: the kind \"su\""));
  EXPECT_THAT(Refusal(Config("Gemma3ForConditionalGeneration")),
              HasSubstr("Gemma3ForConditionalGeneration is not supported"));
}

TEST(Gemma3, RefusesRotationsOfOtherLayersThanItHas) {
  const auto refusal = [](const std::string& kinds) {
    return Refusal(Config("Gemma3ForCausalLM", R"(, "rope_parameters": )" + kinds));
  };
  EXPECT_THAT(refusal(R"({"full_attention": [], "sliding_attention": 3})"),
              HasSubstr("rope_parameters has [] for full_attention, no object"));
  EXPECT_THAT(refusal(R"({"chunked": {}})"), HasSubstr("of chunked are not supported"));
}

}  // namespace
}  // namespace muster
