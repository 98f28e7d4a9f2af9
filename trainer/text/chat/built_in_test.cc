#include "trainer/text/chat/built_in.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/text/chat/testing/segments.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Conversation kTalk = {
    .messages = {
        {"system", "S"}, {"user", "U1"}, {"assistant", "A1"}, {"user", "U2"}, {"assistant", "A2"}}};
const Conversation kQuestion = {.messages = {{"user", "U"}}};

std::vector<ChatSegment> Render(const char* name, const Conversation& conversation,
                                GenerationPrompt prompt = GenerationPrompt::kNone) {
  const auto segments = FindBuiltIn(name)->render(conversation, {}, prompt);
  EXPECT_TRUE(segments.ok()) << segments.status().ToString();
  return segments.ok() ? *segments : std::vector<ChatSegment>();
}

std::string Refusal(const char* name, const Conversation& conversation) {
  return FindBuiltIn(name)->render(conversation, {}, GenerationPrompt::kNone).status().message();
}

TEST(BuiltInTest, ChatmlMarksWhatTheAssistantSays) {
  EXPECT_THAT(
      Render("chatml", {.messages = {{"user", "Hi"}, {"assistant", "Yo"}}}),
      ElementsAre(ChatSegment{"<|im_start|>user\n", false, true}, ChatSegment{"Hi", false, false},
                  ChatSegment{"<|im_end|>", false, true}, ChatSegment{"\n", false, true},
                  ChatSegment{"<|im_start|>assistant\n", false, true},
                  ChatSegment{"Yo", true, false}, ChatSegment{"<|im_end|>", true, true},
                  ChatSegment{"\n", false, true}));
  const auto empty = Render("chatml", {.messages = {{"user", ""}}}, GenerationPrompt::kAssistant);
  ASSERT_EQ(empty.size(), 4u);
  EXPECT_EQ(empty.back(), (ChatSegment{"<|im_start|>assistant\n", false, true}));
}

TEST(BuiltInTest, EveryFormWritesItsTurns) {
  const struct {
    const char* name;
    const char* talk;
    const char* trained;
    const char* question;
  } cases[] = {
      {"llama2", "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU1 [/INST] A1 </s><s>[INST] U2 [/INST] A2 </s>",
       " A1 </s> A2 </s>", "<s>[INST] U [/INST]"},
      {"llama3",
       "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nU1<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nU2<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\nA2<|eot_id|>",
       "A1<|eot_id|>A2<|eot_id|>",
       "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\n"},
      {"mistral", "<s>[INST] S\n\nU1 [/INST] A1</s>[INST] U2 [/INST] A2</s>", " A1</s> A2</s>",
       "<s>[INST] U [/INST]"},
      {"zephyr",
       "<|system|>\nS</s>\n<|user|>\nU1</s>\n<|assistant|>\nA1</s>\n<|user|>\nU2</s>\n"
       "<|assistant|>\nA2</s>\n",
       "A1</s>A2</s>", "<|user|>\nU</s>\n<|assistant|>\n"},
      {"openassistant",
       "<|system|>S<|endoftext|><|prompter|>U1<|endoftext|><|assistant|>A1<|endoftext|>"
       "<|prompter|>U2<|endoftext|><|assistant|>A2<|endoftext|>",
       "A1<|endoftext|>A2<|endoftext|>", "<|prompter|>U<|endoftext|><|assistant|>"},
  };
  for (const auto& c : cases) {
    const auto talk = Render(c.name, kTalk);
    EXPECT_EQ(WholeText(talk), c.talk) << c.name;
    EXPECT_EQ(TrainedText(talk), c.trained) << c.name;
    EXPECT_EQ(ContentText(talk), "SU1A1U2A2") << c.name;
    EXPECT_EQ(WholeText(Render(c.name, kQuestion, GenerationPrompt::kAssistant)), c.question);
  }
}

TEST(BuiltInTest, TheModelsOwnTokensStandForTheUsualOnes) {
  const SpecialTokens tokens{.texts = {{"eos_token", "<|end|>"}, {"bos_token", "<|begin|>"}}};
  const auto zephyr = FindBuiltIn("zephyr")->render(kQuestion, tokens, GenerationPrompt::kNone);
  ASSERT_TRUE(zephyr.ok());
  EXPECT_EQ(WholeText(*zephyr), "<|user|>\nU<|end|>\n");
  const auto llama = FindBuiltIn("llama2")->render(kQuestion, tokens, GenerationPrompt::kNone);
  ASSERT_TRUE(llama.ok());
  EXPECT_EQ(WholeText(*llama), "<|begin|>[INST] U [/INST]");
}

TEST(BuiltInTest, WhatAFormCannotSayIsRefusedByMessage) {
  EXPECT_THAT(Refusal("llama2", {.messages = {{"assistant", "A"}}}),
              HasSubstr("messages[0] is of the role assistant"));
  EXPECT_THAT(Refusal("mistral", {.messages = {{"user", "a"}, {"user", "b"}}}),
              HasSubstr("messages[1] is of the role user"));
  EXPECT_THAT(Refusal("mistral", {.messages = {{"system", "a"}}}), HasSubstr("messages[0]"));
  EXPECT_THAT(Refusal("llama3", {.messages = {{"user", "a"}, {"tool", "b"}}}),
              HasSubstr("messages[1] is a tool's"));
  EXPECT_THAT(Refusal("chatml", {.messages = {{"user", "a"}}, .tools = "[{}]"}),
              HasSubstr("no form for \"tools\""));
  EXPECT_THAT(
      Refusal("chatml", {.messages = {{"assistant", "", R"({"tool_calls": [{"id": "1"}]})"}}}),
      HasSubstr("messages[0] has tool_calls"));
  EXPECT_EQ(FindBuiltIn("nosuch"), nullptr);
}

}  // namespace
}  // namespace muster
