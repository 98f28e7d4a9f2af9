#include "trainer/inputs/sample_prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/testing/temp_dir.h"
#include "trainer/formats/init_model.h"
#include "trainer/model/families/read_config.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class SamplePromptsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteModelFiles(dir_.path(), *PresetConfig("tiny")).ok());
    config_ = *ReadModelConfig(dir_.path());
  }
  Result<SamplePrompts> Load(const std::vector<std::string>& texts,
                             std::int64_t max_tokens = 64) const {
    return SamplePrompts::Load(texts, config_,
                               {.model_dir = dir_.path(), .max_tokens = max_tokens});
  }

  TempDirForTest dir_;
  ModelConfig config_;
};

TEST_F(SamplePromptsTest, AreWhatAUserSaysWhereThereIsATemplate) {
  const Result<SamplePrompts> samples = Load({"hi", "and?"});
  ASSERT_TRUE(samples.ok()) << samples.status().ToString();
  ASSERT_EQ(samples->prompts().size(), 2u);
  const SamplePrompt& prompt = samples->prompts()[0];
  EXPECT_EQ(prompt.text, "hi");
  const std::string text = "user\nhi";
  std::vector<std::int32_t> begin = {kImStartId};
  begin.insert(begin.end(), text.begin(), text.end());
  begin.push_back(kImEndId);
  ASSERT_GT(prompt.ids.size(), begin.size());
  EXPECT_EQ(std::vector<std::int32_t>(prompt.ids.begin(),
                                      prompt.ids.begin() + static_cast<long>(begin.size())),
            begin);
  EXPECT_EQ(prompt.ids.back(), '\n') << "the assistant's turn has begun";
  EXPECT_EQ(samples->words(), kByteVocabSize);
}

TEST_F(SamplePromptsTest, WhatFollowsBecomesTextInWholeCharacters) {
  const Result<SamplePrompts> samples = Load({"hi"});
  ASSERT_TRUE(samples.ok());
  EXPECT_EQ(samples->TextOf(samples->prompts()[0], {'y', 'o', 0xc3, 0xa9}), "yo\xc3\xa9");
  EXPECT_EQ(samples->TextOf(samples->prompts()[0], {'y', 0xc3}), "y\xef\xbf\xbd");
  EXPECT_TRUE(samples->Ends(config_.eos_token_ids.front()));
  EXPECT_FALSE(samples->Ends('y'));
}

TEST_F(SamplePromptsTest, AnAnswerEndsWithItsTurn) {
  config_.eos_token_ids = {kEndOfTextId};
  const Result<SamplePrompts> samples = Load({"hi"});
  ASSERT_TRUE(samples.ok());
  EXPECT_TRUE(samples->Ends(kImEndId));
  EXPECT_FALSE(samples->Ends(kImStartId));
}

TEST_F(SamplePromptsTest, AreRefusedByNumberWhereNothingCouldFollow) {
  const Status status = Load({"hi", std::string(60, 'a')}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("train.eval.samples: prompt 2 has "));
  EXPECT_THAT(status.message(), HasSubstr("train.data.max_seq_len: 64"));
}

}  // namespace
}  // namespace muster
