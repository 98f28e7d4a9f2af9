#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/model/families/read_config.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

Result<ModelConfig> Read(const std::string& extra) {
  return ParseModelConfig(R"({"architectures": ["GraniteForCausalLM"], "hidden_size": 64,
    "intermediate_size": 172, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 320)" +
                              extra + "}",
                          "some/config.json");
}

TEST(Granite, HasTheMultipliersOfItsConfig) {
  const auto config = Read(R"(, "embedding_multiplier": 12, "attention_multiplier": 0.015625,
                              "residual_multiplier": 0.22, "logits_scaling": 8.0)");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->embedding_multiplier, 12);
  EXPECT_EQ(config->attention_multiplier, 0.015625);
  EXPECT_EQ(config->residual_multiplier, 0.22);
  EXPECT_EQ(config->logits_scaling, 8);
}

// Not 1 / sqrt(head_dim): as GraniteConfig.
TEST(Granite, WithoutAnyTheyAreOne) {
  const auto config = Read("");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->attention_multiplier, 1);
  EXPECT_EQ(config->residual_multiplier, 1);
  EXPECT_EQ(config->num_key_value_heads, 4);
}

TEST(Granite, RefusesMultipliersThatAreNone) {
  for (const char* key :
       {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"}) {
    for (const char* value : {"0", "-1", "\"8\""}) {
      const auto config = Read(", \"" + std::string(key) + "\": " + value);
      ASSERT_FALSE(config.ok()) << key;
      EXPECT_THAT(config.status().message(), HasSubstr("some/config.json: " + std::string(key)));
    }
  }
  EXPECT_THAT(Read(R"(, "attention_bias": true)").status().message(), HasSubstr("attention_bias"));
}

}  // namespace
}  // namespace muster
