#include "trainer/inputs/init_weights.h"
#include "common/base/testing/temp_dir.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/files.h"
#include "trainer/formats/safetensors.h"
#include "trainer/model/weight_check.h"

namespace muster {
namespace {

ModelConfig Config() {
  ModelConfig config;
  config.hidden_size = 32;
  config.intermediate_size = 40;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.vocab_size = 300;
  return config;
}

class InitWeights : public testing::Test {
 protected:
  std::string Write(const std::string& name, std::uint64_t seed) {
    const std::string dir = dir_ / name;
    EXPECT_TRUE(MakeDirectories(dir).ok());
    EXPECT_TRUE(WriteRandomWeights(Config(), seed, dir).ok());
    return dir;
  }

  const TempDirForTest dir_;
};

TEST_F(InitWeights, TensorsAreThoseOfTheConfigAndNormal) {
  const Result<SafetensorsModel> model = SafetensorsModel::Open(Write("a", 1));
  ASSERT_TRUE(model.ok());
  EXPECT_TRUE(CheckModelTensors(Config(), *model).ok());
  std::vector<float> values(300 * 32);
  ASSERT_TRUE(model->ReadFloats("lm_head.weight", 0, 300 * 32, values.data()).ok());
  double sum = 0, squares = 0;
  for (const float value : values) {
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 9600, 0, 0.001);
  EXPECT_NEAR(std::sqrt(squares / 9600), 0.02, 0.001);
  ASSERT_TRUE(model->ReadFloats("model.norm.weight", 0, 32, values.data()).ok());
  EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + 32), std::vector<float>(32, 1.0f));
}

TEST_F(InitWeights, TheSeedDecidesEveryByte) {
  const auto bytes = [](const std::string& dir) { return *ReadFile(dir + "/model.safetensors"); };
  const std::string first = bytes(Write("a", 1));
  EXPECT_EQ(first, bytes(Write("b", 1)));
  EXPECT_NE(first, bytes(Write("c", 2)));
}

TEST_F(InitWeights, ATensorOfAnotherShapeIsNamed) {
  const Result<SafetensorsModel> model = SafetensorsModel::Open(Write("a", 1));
  ASSERT_TRUE(model.ok());
  ModelConfig other = Config();
  other.intermediate_size = 41;
  const Status status = CheckModelTensors(other, *model);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("model.layers.0.mlp.gate_proj.weight"), std::string::npos);
  EXPECT_NE(status.message().find("[40, 32]"), std::string::npos) << status.message();
}

// A config.json of two layers beside weights of more would train a part of the model.
TEST_F(InitWeights, ATensorThatConfigDoesNotKnowIsNamedWithItsFile) {
  const Result<SafetensorsModel> model = SafetensorsModel::Open(Write("a", 1));
  ASSERT_TRUE(model.ok());
  ModelConfig other = Config();
  other.num_hidden_layers -= 1;
  const Status status = CheckModelTensors(other, *model);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("model.safetensors: tensor model.layers.1."), std::string::npos)
      << status.message();
  ModelConfig tied = Config();
  tied.tie_word_embeddings = true;
  EXPECT_TRUE(CheckModelTensors(tied, *model).ok()) << "the head is the embedding";
}

}  // namespace
}  // namespace muster
