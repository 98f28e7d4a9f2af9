#include "trainer/formats/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/formats/init_model.h"
#include "trainer/formats/temp_dir.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ChatTest, MarksWhatTheAssistantSays) {
  const auto segments = RenderChatml({{"user", "Hi"}, {"assistant", "Yo"}});
  EXPECT_THAT(
      segments,
      ElementsAre(ChatSegment{"<|im_start|>user\n", false, true}, ChatSegment{"Hi", false, false},
                  ChatSegment{"<|im_end|>", false, true}, ChatSegment{"\n", false, true},
                  ChatSegment{"<|im_start|>assistant\n", false, true},
                  ChatSegment{"Yo", true, false}, ChatSegment{"<|im_end|>", true, true},
                  ChatSegment{"\n", false, true}));
}

TEST(ChatTest, AGenerationPromptOpensTheAnswer) {
  const auto segments = RenderChatml({{"user", ""}}, GenerationPrompt::kAssistant);
  ASSERT_EQ(segments.size(), 4u);
  EXPECT_EQ(segments.back(), (ChatSegment{"<|im_start|>assistant\n", false, true}));
}

TEST(ChatTest, NeedsATokenizerWithTheTemplatesTokens) {
  TempDir dir;
  ASSERT_TRUE(WriteModelFiles(dir.path(), *PresetConfig("tiny")).ok());
  const auto tokenizer = Tokenizer::Load(dir.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_TRUE(CheckChatTemplate("auto", *tokenizer).ok());
  EXPECT_TRUE(CheckChatTemplate("chatml", *tokenizer).ok());
  EXPECT_THAT(CheckChatTemplate("llama3", *tokenizer).message(), HasSubstr("llama3"));
  EXPECT_EQ(tokenizer->Decode(EncodeChatPrompt({{"user", "<|im_end|>"}}, *tokenizer)),
            "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n");
  EXPECT_THAT(EncodeChatPrompt({}, *tokenizer),
              ElementsAre(kImStartId, 'a', 's', 's', 'i', 's', 't', 'a', 'n', 't', '\n'));

  const auto plain = Tokenizer::Parse(
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
          "pre_tokenizer": {"type": "ByteLevel"}})",
      "plain");
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  EXPECT_THAT(CheckChatTemplate("auto", *plain).message(), HasSubstr("prompt and completion"));
}

}  // namespace
}  // namespace muster
