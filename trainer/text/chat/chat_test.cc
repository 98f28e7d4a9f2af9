#include "trainer/text/chat/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "trainer/formats/init_model.h"
#include "trainer/text/chat/built_in.h"
#include "trainer/text/chat/testing/segments.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Conversation kQuestion = {.messages = {{"user", "Hi"}}};

class ChatTest : public ::testing::Test {
 protected:
  // The tokenizer of a new model, which has ChatML's tokens.
  Tokenizer NewTokenizer() {
    TempDirForTest dir;
    EXPECT_TRUE(WriteModelFiles(dir.path(), *PresetConfig("tiny")).ok());
    return *Tokenizer::Load(dir.path());
  }
  // One that begins every text with <s>.
  Tokenizer PrefixTokenizer(const std::string& tokens) {
    auto tokenizer = Tokenizer::Parse(
        R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
            "added_tokens": [{"id": 1, "content": "<s>", "special": true}, )" +
            tokens + R"(],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
            "post_processor": {"type": "TemplateProcessing", "single":
              [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
              "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}})",
        "plain");
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    return *std::move(tokenizer);
  }
  std::string Rendered(const Result<ChatTemplate>& chat_template,
                       const Conversation& conversation = kQuestion) {
    if (!chat_template.ok()) return chat_template.status().message();
    const auto segments =
        chat_template->Render(conversation, {.prompt = GenerationPrompt::kAssistant});
    return segments.ok() ? WholeText(*segments) : segments.status().message();
  }

  TempDirForTest dir_;
};

TEST_F(ChatTest, AModelsOwnTemplateIsFoundInEitherFile) {
  EXPECT_EQ(ChatTemplate::Load(dir_.path()).status().code(), StatusCode::kNotFound);
  dir_.Write("tokenizer_config.json",
             R"({"eos_token": {"content": "</s>"}, "chat_template": null})");
  EXPECT_EQ(ChatTemplate::Load(dir_.path()).status().code(), StatusCode::kNotFound);
  dir_.Write("tokenizer_config.json",
             R"({"eos_token": {"content": "</s>"}, "chat_template": "config{{ eos_token }}"})");
  EXPECT_EQ(Rendered(ChatTemplate::Load(dir_.path())), "config</s>");
  dir_.Write("chat_template.jinja", "file{{ eos_token }}{{ bos_token }}");
  dir_.Write("special_tokens_map.json", R"({"bos_token": "<s>", "eos_token": "other"})");
  EXPECT_EQ(Rendered(ChatTemplate::Load(dir_.path())), "file</s><s>");
}

TEST_F(ChatTest, OfSeveralTemplatesTheDefaultAndTheOneForToolsCount) {
  dir_.Write("tokenizer_config.json",
             R"({"chat_template": [{"name": "rag", "template": "r"},
                 {"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})");
  EXPECT_EQ(Rendered(ChatTemplate::Load(dir_.path())), "d");
  EXPECT_EQ(
      Rendered(ChatTemplate::Load(dir_.path()), {.messages = kQuestion.messages, .tools = "[{}]"}),
      "t");
}

TEST_F(ChatTest, BrokenFilesAreNamed) {
  dir_.Write("tokenizer_config.json", "{");
  EXPECT_THAT(Rendered(ChatTemplate::Load(dir_.path())),
              HasSubstr("tokenizer_config.json is not valid JSON"));
  dir_.Write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THAT(Rendered(ChatTemplate::Load(dir_.path())),
              HasSubstr("chat_template is a JSON number"));
  dir_.Write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "r"}]})");
  EXPECT_THAT(Rendered(ChatTemplate::Load(dir_.path())),
              HasSubstr("no template with the name \"default\""));
  dir_.Write("chat_template.jinja", "a\n{% nosuch %}");
  EXPECT_THAT(Rendered(ChatTemplate::Load(dir_.path())),
              HasSubstr("chat_template.jinja:2: the tag {% nosuch %}"));
  EXPECT_THAT(Rendered(ChatTemplate::LoadFile(dir_ / "no.jinja", dir_.path())),
              HasSubstr("there is no chat template"));
}

TEST_F(ChatTest, ANewModelsTemplateIsTheBuiltInChatml) {
  ASSERT_TRUE(WriteModelFiles(dir_.path(), *PresetConfig("tiny")).ok());
  const auto own = ChatTemplate::Load(dir_.path());
  ASSERT_TRUE(own.ok()) << own.status().ToString();
  EXPECT_EQ(own->built_in(), FindBuiltIn("chatml"));
  // And the Jinja that others see says the same.
  dir_.Write("t.jinja", kChatmlJinja);
  EXPECT_EQ(Rendered(ChatTemplate::LoadFile(dir_ / "t.jinja", dir_.path())), Rendered(own));
}

TEST_F(ChatTest, ChoosesByNameByPathOrByWhatTheModelHas) {
  const Tokenizer tokenizer = NewTokenizer();
  EXPECT_EQ(Rendered(ChooseChatTemplate("auto", "", tokenizer)),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(Rendered(ChooseChatTemplate("chatml", dir_.path(), tokenizer)),
            Rendered(ChooseChatTemplate("auto", dir_.path(), tokenizer)));
  dir_.Write("chat_template.jinja", "own");
  EXPECT_EQ(Rendered(ChooseChatTemplate("auto", dir_.path(), tokenizer)), "own");
  const std::string file = dir_.Write("mine.jinja", "mine");
  EXPECT_EQ(Rendered(ChooseChatTemplate(file, dir_.path(), tokenizer)), "mine");
  EXPECT_THAT(Rendered(ChooseChatTemplate("nosuch", "", tokenizer)),
              HasSubstr("no built-in chat template nosuch"));
  dir_.Write("chat_template.jinja", "{% nosuch %}");
  EXPECT_EQ(ChooseChatTemplate("auto", dir_.path(), tokenizer).status().code(),
            StatusCode::kInvalidArgument)
      << "a template that is broken is not passed over";
}

TEST_F(ChatTest, NeedsATokenizerWithTheTemplatesTokens) {
  EXPECT_THAT(Rendered(ChooseChatTemplate("llama3", "", NewTokenizer())),
              HasSubstr("the tokenizer has no <|begin_of_text|> and <|start_header_id|> and "));
  const Tokenizer plain = PrefixTokenizer(R"({"id": 2, "content": "</s>", "special": true})");
  const auto none = ChooseChatTemplate("auto", "", plain);
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(none.status().message(), HasSubstr("prompt and completion"));
  EXPECT_TRUE(ChooseChatTemplate("zephyr", "", plain).ok());
}

TEST_F(ChatTest, ContentIsEncodedWithoutAddedTokens) {
  const Tokenizer tokenizer = NewTokenizer();
  const auto chat_template = ChooseChatTemplate("auto", "", tokenizer);
  const auto chat = EncodeChat(*chat_template, {.messages = {{"user", "<|im_end|>"}}}, tokenizer,
                               {.prompt = GenerationPrompt::kAssistant});
  ASSERT_TRUE(chat.ok()) << chat.status().ToString();
  EXPECT_EQ(tokenizer.Decode(chat->ids),
            "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(std::count(chat->ids.begin(), chat->ids.end(), kImEndId), 1);
  const auto empty =
      EncodeChat(*chat_template, {}, tokenizer, {.prompt = GenerationPrompt::kAssistant});
  ASSERT_TRUE(empty.ok());
  EXPECT_THAT(empty->ids,
              ElementsAre(kImStartId, 'a', 's', 's', 'i', 's', 't', 'a', 'n', 't', '\n'));
}

TEST_F(ChatTest, WhatBeginsEveryTextBeginsAChatOnce) {
  const Tokenizer tokenizer = PrefixTokenizer(
      R"({"id": 2, "content": "</s>", "special": true}, {"id": 3, "content": "<|im_start|>"},
         {"id": 4, "content": "<|im_end|>"})");
  const Conversation letter = {.messages = {{"user", "a"}}};
  const auto llama = EncodeChat(*ChatTemplate::BuiltIn("llama2"), letter, tokenizer);
  ASSERT_TRUE(llama.ok()) << llama.status().ToString();
  EXPECT_EQ(std::count(llama->ids.begin(), llama->ids.end(), 1), 1);
  EXPECT_EQ(llama->ids.front(), 1);
  const auto chatml = EncodeChat(*ChatTemplate::BuiltIn("chatml"), letter, tokenizer);
  ASSERT_TRUE(chatml.ok()) << chatml.status().ToString();
  EXPECT_THAT(chatml->ids, ElementsAre(1, 3, 0, 4));
  EXPECT_EQ(chatml->trained.size(), chatml->ids.size());
  dir_.Write("chat_template.jinja", "{{ messages[0].content }}");
  const auto own = EncodeChat(*ChatTemplate::Load(dir_.path()), letter, tokenizer);
  ASSERT_TRUE(own.ok()) << own.status().ToString();
  EXPECT_THAT(own->ids, ElementsAre(0)) << "a template in Jinja writes its own beginning";
}

// Tokenizers of testdata with templates of their families.
TEST_F(ChatTest, EveryFamilyHasItsEndsOfATurn) {
  const auto ends = [&](const std::string& shape, const std::string& kind, const char* eos) {
    const auto tokenizer =
        Tokenizer::Parse(*ReadFile(MUSTER_TOKENIZERS "/" + kind + ".tokenizer.json"), kind);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    dir_.Write("tokenizer_config.json",
               R"({"bos_token": "<s>", "eos_token": ")" + std::string(eos) + R"("})");
    const auto chat =
        ChatTemplate::LoadFile(MUSTER_TESTDATA "/" + shape + "_shape.jinja", dir_.path());
    EXPECT_TRUE(chat.ok()) << chat.status().ToString();
    std::string texts;
    for (const std::int32_t id : EndsOfTurn(*chat, *tokenizer))
      texts += (texts.empty() ? "" : " ") + tokenizer->TokenText(id);
    return texts;
  };
  EXPECT_EQ(ends("gpt_oss", "o200k", "<|return|>"), "<|return|> <|call|>");
  EXPECT_EQ(ends("gemma2", "gemma", "<eos>"), "<end_of_turn>") << "not the line's end behind it";
  EXPECT_EQ(ends("gemma3", "gemma", "<eos>"), "<end_of_turn>");
  EXPECT_EQ(ends("phi3", "phi3", "<|endoftext|>"), "<|end|>") << "not the text's";
  EXPECT_EQ(ends("phi4_mini", "o200k", "<|endoftext|>"), "<|end|>");
  EXPECT_EQ(ends("phi4", "phi4", "<|im_end|>"), "<|im_end|>");
  EXPECT_EQ(ends("granite3", "gpt_neox", "<|endoftext|>"), "") << "its tokenizer has such a token";
  EXPECT_EQ(ends("olmoe", "gpt_neox", "<|endoftext|>"), "<|endoftext|>");
  EXPECT_EQ(ends("mixtral", "llama2", "</s>"), "</s>");
  EXPECT_EQ(ends("qwen3", "qwen3", "<|im_end|>"), "<|im_end|>") << "nor that of a call in it";
}

}  // namespace
}  // namespace muster
