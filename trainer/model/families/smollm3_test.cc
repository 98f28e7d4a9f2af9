#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/model/families/read_config.h"
#include "trainer/model/families/units.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Config(const std::string& extra) {
  return R"({"architectures": ["SmolLM3ForCausalLM"], "hidden_size": 64, "intermediate_size": 172,
    "num_hidden_layers": 5, "num_attention_heads": 4, "vocab_size": 320)" +
         extra + "}";
}

TEST(SmolLm3, LeavesOutTheRotationOfEveryFourthLayer) {
  const auto config = ParseModelConfig(Config(""), "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_THAT(config->rotating_layers, ElementsAre(true, true, true, false, true));
  EXPECT_EQ(config->num_key_value_heads, 4);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_DOUBLE_EQ(config->rope_theta, 2e6);
  const auto other = ParseModelConfig(Config(R"(, "no_rope_layer_interval": 2)"), "config.json");
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  EXPECT_THAT(other->rotating_layers, ElementsAre(true, false, true, false, true));
}

TEST(SmolLm3, TakesTheLayersThatItsConfigNames) {
  const auto config = ParseModelConfig(Config(R"(, "no_rope_layers": [1, 0, 1, 1, 0])"), "c.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_THAT(config->rotating_layers, ElementsAre(true, false, true, true, false));
}

TEST(SmolLm3, RefusesLayersThatCannotBe) {
  for (const char* layers : {"[1, 0]", "[1, 0, 1, 1, 2]", "[1, 0, 1, 1, \"no\"]", "3"}) {
    const auto config =
        ParseModelConfig(Config(R"(, "no_rope_layers": )" + std::string(layers)), "some/c.json");
    ASSERT_FALSE(config.ok()) << layers;
    EXPECT_THAT(config.status().message(), HasSubstr("some/c.json: no_rope_layers")) << layers;
  }
}

}  // namespace
}  // namespace muster
