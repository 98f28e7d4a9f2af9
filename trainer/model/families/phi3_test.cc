#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/model/families/read_config.h"
#include "trainer/model/families/units.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<ModelConfig> Read(const std::string& extra) {
  return ParseModelConfig(R"({"architectures": ["Phi3ForCausalLM"], "hidden_size": 64,
    "intermediate_size": 172, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 320)" +
                              extra + "}",
                          "some/config.json");
}

TEST(Phi3, HasFusedProjections) {
  const auto config = Read("");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->max_position_embeddings, 4096);
  EXPECT_FALSE(config->sliding_window.has_value());
  std::vector<std::string> names;
  std::int64_t count = 0;
  for (const UnitTensor& tensor : ModelTensors(*config)) {
    names.push_back(tensor.name + " " + ShapeText(tensor.shape));
    count += ElementCount(tensor.shape);
    EXPECT_FALSE(tensor.joined) << tensor.name;
  }
  EXPECT_THAT(names, ElementsAre("model.embed_tokens.weight [320, 64]",
                                 "model.layers.0.input_layernorm.weight [64]",
                                 "model.layers.0.self_attn.qkv_proj.weight [128, 64]",
                                 "model.layers.0.self_attn.o_proj.weight [64, 64]",
                                 "model.layers.0.post_attention_layernorm.weight [64]",
                                 "model.layers.0.mlp.gate_up_proj.weight [344, 64]",
                                 "model.layers.0.mlp.down_proj.weight [64, 172]",
                                 "model.norm.weight [64]", "lm_head.weight [320, 64]"));
  EXPECT_EQ(count, config->ParameterCount());
}

// 12 of a head's 16 elements rotate.
TEST(Phi3, HasLongRopeByItsOldNamesToo) {
  for (const char* kind : {"longrope", "su", "yarn"}) {
    const auto config = Read(R"(, "partial_rotary_factor": 0.75, "sliding_window": 100,
      "max_position_embeddings": 8192, "original_max_position_embeddings": 2048,
      "rope_scaling": {"short_factor": [1, 1, 1, 1, 1, 1], "long_factor": [1, 1, 1, 1, 1, 2],
                       "original_max_position_embeddings": 1, "type": ")" +
                             std::string(kind) + "\"}");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(config->rope_scaling->kind, RopeKind::kLongRope);
    EXPECT_EQ(config->rope_scaling->original_max_position_embeddings, 2048);
    EXPECT_EQ(config->rope_scaling->factor, 4);
    EXPECT_EQ(config->rotary_half(), 6);
    EXPECT_EQ(config->sliding_window, 100);
  }
}

TEST(Phi3, RefusesWhatItCannot) {
  const auto refusal = [](const std::string& extra) { return Read(extra).status().message(); };
  EXPECT_THAT(refusal(R"(, "rope_scaling": {"type": "linear", "factor": 2})"),
              HasSubstr("\"linear\" is not supported in a phi3; it knows default and longrope"));
  EXPECT_THAT(refusal(R"(, "resid_pdrop": 0.1)"), HasSubstr("resid_pdrop"));
  EXPECT_THAT(refusal(R"(, "embd_pdrop": 0.1)"), HasSubstr("embd_pdrop"));
  EXPECT_THAT(refusal(R"(, "partial_rotary_factor": 0.01)"), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(refusal(R"(, "partial_rotary_factor": 1.5)"), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(refusal(R"(, "sliding_window": 0)"), HasSubstr("sliding_window is 0"));
}

}  // namespace
}  // namespace muster
