#include "trainer/inputs/vocab_growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trainer/model/families/read_config.h"
#include "trainer/text/tokenizer/tokenizer.h"
#include "trainer/train/testing/trainer_testing.h"

namespace muster {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kRows = 288, kWidth = 32;  // of the small model; its tokenizer has 259 ids

class VocabGrowthTest : public TrainerTest {
 protected:
  std::string model_dir() const { return dir_ + "/model"; }

  JobSpec Grown(const std::string& output) const {
    JobSpec spec = Spec(output);
    spec.train->model.add_tokens =
        std::vector<TokenSpec>{{.content = "<|x|>"}, {.content = "<tool>", .special = false}};
    spec.train->model.pad_vocab_to = 64;
    return spec;
  }

  VocabGrowth Plan(const ModelSpec& model, std::int64_t rows) const {
    ModelConfig config = SmallConfig();
    config.vocab_size = rows;
    const auto growth = PlanVocabGrowth(model, model_dir(), config);
    EXPECT_TRUE(growth.ok()) << growth.status().ToString();
    return growth->value();
  }

  std::vector<float> Values(const std::string& dir, const std::string& tensor) const {
    const SafetensorsModel model = *SafetensorsModel::Open(dir_ + "/" + dir);
    std::vector<float> values(static_cast<std::size_t>(model.Find(tensor)->count()));
    EXPECT_TRUE(model.ReadFloats(tensor, 0, model.Find(tensor)->count(), values.data()).ok());
    return values;
  }

  void ExpectWell(const std::vector<RankResult>& results) const {
    for (const RankResult& result : results) {
      ASSERT_TRUE(result.status.ok()) << result.status.message();
    }
  }
};

TEST_F(VocabGrowthTest, NothingGrowsUnasked) {
  const auto growth = PlanVocabGrowth({.path = "model"}, model_dir(), SmallConfig());
  ASSERT_TRUE(growth.ok());
  EXPECT_FALSE(growth->has_value());
}

TEST_F(VocabGrowthTest, TheModelGetsRowsForAllIdsAndNeverLosesAny) {
  ModelSpec asks;
  asks.add_tokens.emplace();
  EXPECT_EQ(Plan(asks, kRows).rows, kRows);
  EXPECT_EQ(Plan(asks, 200).rows, kByteVocabSize) << "ids that the tokenizer had already";
  asks.add_tokens->push_back({.content = "<|x|>"});
  asks.add_tokens->push_back({.content = "<|im_end|>"});
  EXPECT_EQ(Plan(asks, 200).rows, kByteVocabSize + 1);
  const VocabGrowth free_rows = Plan(asks, kRows);
  EXPECT_FALSE(free_rows.grows()) << "the model has rows that no token had";
  ASSERT_EQ(free_rows.tokens.size(), 1u);
  EXPECT_EQ(free_rows.tokens[0].id, kByteVocabSize);
  asks.pad_vocab_to = 64;
  EXPECT_EQ(Plan(asks, 200).rows, 320);
  EXPECT_EQ(Plan(asks, 320).rows, 320);
  EXPECT_EQ(Plan(asks, 321).rows, 384);
  EXPECT_THAT(Plan(asks, 200).Describe(),
              HasSubstr("new tokens: <|x|> (259); the embedding has 320 rows, 120 more"));
}

TEST_F(VocabGrowthTest, TokensWantATokenizerJson) {
  std::filesystem::remove(model_dir() + "/tokenizer.json");
  ModelSpec asks;
  asks.pad_vocab_to = 64;
  EXPECT_EQ(Plan(asks, kRows).rows, 320);
  asks.add_tokens = std::vector<TokenSpec>{{.content = "<|x|>"}};
  const auto refused = PlanVocabGrowth(asks, model_dir(), SmallConfig());
  EXPECT_THAT(refused.status().message(), HasSubstr("train.model.add_tokens: there is no "));
}

// With a learning rate of 0 the exported model is the one that training began with.
TEST_F(VocabGrowthTest, NewRowsBeginAsTheMeanAndTheFilesSaySo) {
  JobSpec spec = Grown("out");
  spec.train->optimizer.lr = 0;
  spec.train->schedule.max_steps = 1;
  for (ranks_ = 1; ranks_ <= 3; ++ranks_) {
    std::filesystem::remove_all(dir_ + "/out");
    ExpectWell(RunAlone(spec));
    EXPECT_THAT(Said(), HasSubstr("new tokens: <|x|> (259), <tool> (260)"));
    for (const char* tensor : {"model.embed_tokens.weight", "lm_head.weight"}) {
      const std::vector<float> before = Values("model", tensor),
                               after = Values("out/model", tensor);
      ASSERT_EQ(after.size(), 320u * kWidth);
      EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
      for (std::int64_t column = 0; column < kWidth; ++column) {
        double mean = 0;
        for (std::int64_t row = 0; row < kRows; ++row)
          mean += before[row * kWidth + column] / 288.0;
        for (std::int64_t row = kRows; row < 320; ++row)
          ASSERT_NEAR(after[row * kWidth + column], mean, 1e-8) << row;
      }
    }
  }
  const auto config = ReadModelConfig(dir_ + "/out/model");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->vocab_size, 320);
  const auto tokenizer = Tokenizer::Load(dir_ + "/out/model");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_EQ(tokenizer->Encode("<|x|>"), std::vector<std::int32_t>{259});
  EXPECT_EQ(tokenizer->TokenId("<tool>"), 260);
  const Json decoder = ReadJson("out/model/tokenizer_config.json")["added_tokens_decoder"];
  EXPECT_EQ(decoder["259"]["content"], "<|x|>");
  EXPECT_EQ(decoder["260"]["special"], false);
  EXPECT_EQ(ReadJson("out/model-files/config.json")["vocab_size"], 320);
  EXPECT_EQ(ReadJson("model/config.json")["vocab_size"], 288) << "the source stays as it was";
}

TEST_F(VocabGrowthTest, NewTokensOfRowsAreTrained) {
  std::ofstream rows(dir_ + "/rows.jsonl");
  for (int i = 0; i < 12; ++i) rows << Json{{"text", "a <|x|> b " + std::to_string(i)}} << "\n";
  rows.close();
  JobSpec spec = Grown("out");
  spec.train->model.add_tokens->clear();
  for (int i = 0; i < 29; ++i)
    spec.train->model.add_tokens->push_back({.content = "<|" + std::to_string(i) + "|>"});
  spec.train->model.add_tokens->push_back({.content = "<|x|>"});  // 288: a row of no file
  ExpectWell(RunAlone(spec));
  const std::vector<Json> metrics = Metrics("out");
  EXPECT_LT(metrics.back()["loss"], metrics.front()["loss"]);
  const std::vector<float> embedding = Values("out/model", "model.embed_tokens.weight");
  const auto row = [&](std::int64_t id) {
    return std::vector<float>(embedding.begin() + id * kWidth,
                              embedding.begin() + (id + 1) * kWidth);
  };
  EXPECT_EQ(Tokenizer::Load(dir_ + "/out/model")->TokenId("<|x|>"), 288);
  EXPECT_NE(row(288), row(289)) << "a token that comes, and one that does not";
  EXPECT_EQ(row(289), row(290));
}

TEST_F(VocabGrowthTest, AResumedRunOfAGrownModelEndsInTheSameBits) {
  const std::vector<RankResult> whole = Run(Grown("whole"));
  ExpectWell(whole);
  Commit(whole, 3);
  std::filesystem::create_directories(dir_ + "/again");
  std::filesystem::copy(dir_ + "/whole/checkpoints", dir_ + "/again/checkpoints",
                        std::filesystem::copy_options::recursive);
  const std::vector<RankResult> again = Run(Grown("again"));
  ExpectWell(again);
  // Rank 0 also reports which tokens are new.
  EXPECT_EQ(again[1].messages[1]["step"], 3);
  EXPECT_EQ(*ReadFile(dir_ + "/again/model/model.safetensors"),
            *ReadFile(dir_ + "/whole/model/model.safetensors"));
}

TEST_F(VocabGrowthTest, AdaptersWantTheNewRowsTrained) {
  JobSpec spec = Grown("out");
  spec.train->lora.emplace().target_modules = {"q_proj"};
  for (const RankResult& result : Run(spec)) {
    ASSERT_FALSE(result.status.ok());
    EXPECT_EQ(result.status.kind_name(), "config");
    EXPECT_THAT(result.status.message(),
                HasSubstr("grows from 288 to 320 rows, and train.lora would leave the new ones "
                          "untrained; add embed_tokens and lm_head to train.lora.modules_to_save"));
  }
  spec.train->lora->modules_to_save = {"embed_tokens", "lm_head"};
  ExpectWell(Run(spec));
  const auto adapter = SafetensorsModel::OpenFile(dir_ + "/out/adapter/adapter_model.safetensors");
  ASSERT_TRUE(adapter.ok()) << adapter.status().ToString();
  const TensorSpec* const embedding = adapter->Find("base_model.model.model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->shape, (std::vector<std::int64_t>{320, kWidth}));
  EXPECT_EQ(Tokenizer::Load(dir_ + "/out/adapter")->TokenId("<|x|>"), 259);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/out/adapter/config.json"));
}

}  // namespace
}  // namespace muster
