#include "trainer/formats/init_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/testing/temp_dir.h"
#include "trainer/model/families/read_config.h"
#include "trainer/text/tokenizer/tokenizer.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(InitModelTest, PresetsHaveTheirSizes) {
  EXPECT_EQ(PresetConfig("tiny")->ParameterCount(), 3'164'416);
  EXPECT_EQ(PresetConfig("small")->ParameterCount(), 31'990'272);
  EXPECT_THAT(PresetConfig("huge").status().message(), HasSubstr("huge"));
}

TEST(InitModelTest, WhatIsWrittenIsWhatIsRead) {
  for (const char* preset : {"tiny", "small"}) {
    TempDirForTest dir;
    auto expected = PresetConfig(preset);
    ASSERT_TRUE(expected.ok());
    ASSERT_TRUE(WriteModelFiles(dir / "new/model", *expected).ok());
    const auto config = ReadModelConfig(dir / "new/model");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(config->hidden_size, expected->hidden_size);
    EXPECT_EQ(config->intermediate_size, expected->intermediate_size);
    EXPECT_EQ(config->num_hidden_layers, expected->num_hidden_layers);
    EXPECT_EQ(config->num_attention_heads, expected->num_attention_heads);
    EXPECT_EQ(config->num_key_value_heads, expected->num_key_value_heads);
    EXPECT_EQ(config->head_dim, expected->head_dim);
    EXPECT_EQ(config->vocab_size, expected->vocab_size);
    EXPECT_EQ(config->rms_norm_eps, expected->rms_norm_eps);
    EXPECT_EQ(config->rope_theta, expected->rope_theta);
    EXPECT_EQ(config->tie_word_embeddings, expected->tie_word_embeddings);
    EXPECT_EQ(config->torch_dtype, expected->torch_dtype);
    EXPECT_EQ(config->bos_token_id, kEndOfTextId);
    EXPECT_THAT(config->eos_token_ids, ElementsAre(kEndOfTextId, kImEndId));
  }
}

// It wrote a Llama's, without rope_scaling and windows, whatever the architecture was.
TEST(InitModelTest, KeepsTheConfigThatItIsGiven) {
  TempDirForTest dir;
  const auto given = ParseModelConfig(
      R"({"architectures": ["MistralForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
          "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
          "vocab_size": 300, "sliding_window": 17, "bos_token_id": 1})",
      "config.json");
  ASSERT_TRUE(given.ok()) << given.status().ToString();
  ASSERT_TRUE(WriteModelFiles(dir / "model", *given).ok());
  const auto config = ReadModelConfig(dir / "model");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->architecture, "MistralForCausalLM");
  EXPECT_EQ(config->sliding_window, 17);
  EXPECT_EQ(config->bos_token_id, kEndOfTextId);
}

TEST(InitModelTest, TheTokenizerSpellsBytesByValue) {
  TempDirForTest dir;
  ASSERT_TRUE(WriteModelFiles(dir.path(), *PresetConfig("tiny")).ok());
  const auto tokenizer = Tokenizer::Load(dir.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_EQ(tokenizer->vocab_size(), kByteVocabSize);
  EXPECT_THAT(tokenizer->Encode("a é<|endoftext|>"), ElementsAre('a', ' ', 0xc3, 0xa9, 256));
  EXPECT_EQ(tokenizer->TokenId("<|im_start|>"), kImStartId);
  EXPECT_EQ(tokenizer->TokenId("<|im_end|>"), kImEndId);
}

TEST(InitModelTest, TheVocabularyMustHoldTheTokenizer) {
  TempDirForTest dir;
  ModelConfig config = *PresetConfig("tiny");
  config.vocab_size = 258;
  const Status status = WriteModelFiles(dir.path(), config);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("258"));
}

TEST(InitModelTest, CopiesWhatThereIsButNoWeights) {
  TempDirForTest from;
  TempDirForTest to;
  from.Write("config.json", "{}");
  from.Write("tokenizer.json", "{\"a\": 1}");
  from.Write("tokenizer.model", "pieces");
  from.Write("model.safetensors", "weights");
  const auto copied = CopyModelFiles(from.path(), to / "out");
  ASSERT_TRUE(copied.ok()) << copied.status().ToString();
  EXPECT_THAT(*copied, ElementsAre("config.json", "tokenizer.json", "tokenizer.model"));
  EXPECT_EQ(*ReadFile(to / "out/tokenizer.json"), "{\"a\": 1}");
  EXPECT_FALSE(std::filesystem::exists(to / "out/model.safetensors"));
  std::filesystem::remove(from / "config.json");
  EXPECT_EQ(CopyModelFiles(from.path(), to.path()).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster
