#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trainer/model/families/read_config.h"
#include "trainer/model/families/units.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::Not;

TEST(Olmo2, HasItsNormsAfterAttentionAndFeedForward) {
  const auto config = ParseModelConfig(
      R"({"architectures": ["Olmo2ForCausalLM"], "hidden_size": 64, "intermediate_size": 172,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "vocab_size": 320})",
      "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->norm_placement, NormPlacement::kAfter);
  EXPECT_EQ(config->qk_norms, QkNorms::kAllHeads);
  EXPECT_DOUBLE_EQ(config->rms_norm_eps, 1e-5);
  std::vector<std::string> names;
  for (const UnitTensor& tensor : ModelTensors(*config)) {
    names.push_back(tensor.name);
    if (tensor.name.ends_with("q_norm.weight")) {
      EXPECT_EQ(tensor.shape, std::vector<std::int64_t>{64});
    }
    if (tensor.name.ends_with("k_norm.weight")) {
      EXPECT_EQ(tensor.shape, std::vector<std::int64_t>{32});
    }
  }
  EXPECT_THAT(names, Contains("model.layers.1.post_attention_layernorm.weight"));
  EXPECT_THAT(names, Contains("model.layers.1.post_feedforward_layernorm.weight"));
  EXPECT_THAT(names, Not(Contains("model.layers.1.input_layernorm.weight")));
}

}  // namespace
}  // namespace muster
