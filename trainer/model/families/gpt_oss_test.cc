#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "trainer/model/families/read_config.h"
#include "trainer/model/families/units.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

std::string Config(const std::string& extra = "") {
  return R"({"architectures": ["GptOssForCausalLM"], "hidden_size": 64, "intermediate_size": 32,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "vocab_size": 320, "attention_bias": true, "num_local_experts": 2, "num_experts_per_tok": 1)" +
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

TEST(GptOss, HasWhatTransformersPutsWhereKeysAreAbsent) {
  const ModelConfig config = Read(Config());
  EXPECT_TRUE(config.attention.sinks && config.qkv_bias && config.output_bias);
  EXPECT_THAT(config.attention.full_layers, ElementsAre(false, true, false));
  EXPECT_EQ(config.WindowOf(0), 128);
  EXPECT_EQ(config.torch_dtype, "bfloat16");
  EXPECT_EQ(config.rope_theta, 150000);
  EXPECT_TRUE(config.experts->normalizes_weights && config.experts->biases &&
              config.experts->picks_by_logit);
  EXPECT_EQ(config.experts->balance_coefficient, 0) << "output_router_logits is false";
  EXPECT_DOUBLE_EQ(config.experts->clamped->limit, 7);
  EXPECT_DOUBLE_EQ(config.experts->clamped->alpha, 1.702);
}

TEST(GptOss, IsStretchedUnlessItsConfigSaysOtherwise) {
  for (const char* absent : {"", R"(, "rope_scaling": null)", R"(, "rope_parameters": {})"}) {
    const ModelConfig config = Read(Config(absent));
    ASSERT_TRUE(config.rope_scaling.has_value()) << absent;
    EXPECT_EQ(config.rope_scaling->kind, RopeKind::kYarn);
    EXPECT_DOUBLE_EQ(config.rope_scaling->factor, 32);
    EXPECT_FALSE(config.rope_scaling->truncate);
    EXPECT_DOUBLE_EQ(config.rope_scaling->attention_factor, 0.1 * std::log(32) + 1);
  }
  EXPECT_EQ(Read(Config(R"(, "rope_scaling": {"rope_type": "default"})")).rope_scaling,
            std::nullopt);
  const auto truncates = [](const char* how) {
    return Read(Config(R"(, "rope_scaling": {"rope_type": "yarn", "factor": 4)" + std::string(how) +
                       "}"))
        .rope_scaling->truncate;
  };
  EXPECT_TRUE(truncates(""));
  EXPECT_FALSE(truncates(R"(, "truncate": null)"));
}

TEST(GptOss, HasATensorForEachExpert) {
  const ModelConfig config = Read(Config());
  std::vector<std::string> names;
  std::int64_t elements = 0;
  for (const UnitTensor& tensor : ModelTensors(config)) {
    names.push_back(tensor.name);
    elements += ElementCount(tensor.shape);
  }
  EXPECT_THAT(
      names,
      IsSupersetOf({"model.layers.2.self_attn.sinks", "model.layers.2.self_attn.o_proj.bias",
                    "model.layers.2.mlp.router.bias", "model.layers.2.mlp.experts.gate_up_proj.1",
                    "model.layers.2.mlp.experts.gate_up_proj_bias.1",
                    "model.layers.2.mlp.experts.down_proj_bias.0"}));
  EXPECT_EQ(elements, config.ParameterCount());
}

TEST(GptOss, RefusesWhatIsNotImplemented) {
  EXPECT_THAT(Refusal(Config(R"(, "sliding_window": null)")),
              HasSubstr("sliding_window is null; layers with a window need one"));
  EXPECT_EQ(Read(Config(R"(, "sliding_window": null, "layer_types": ["full_attention",
      "full_attention", "full_attention"])"))
                .WindowOf(0),
            std::nullopt);
  EXPECT_THAT(Refusal(Config(R"(, "layer_types": ["full_attention"])")),
              HasSubstr("layer_types has 1 kinds; it needs one for each of the 3 layers"));
  EXPECT_THAT(Refusal(Config(R"(, "quantization_config": {"quant_method": "awq"})")),
              HasSubstr("quant_method \"awq\" is not supported"));
  EXPECT_EQ(Refusal(Config(R"(, "quantization_config": {"quant_method": "mxfp4"})")), "");
  EXPECT_THAT(Refusal(Config(R"(, "router_z_loss_coef": 0.1)")), HasSubstr("router_z_loss_coef"));
  EXPECT_THAT(Refusal(Config(R"(, "swiglu_limit": 0)")), HasSubstr("swiglu_limit"));
}

}  // namespace
}  // namespace muster
